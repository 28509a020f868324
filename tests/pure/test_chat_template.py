"""Chat templates rendered: what they are given, what they may do, and how they fail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from pie_edge.errors import TemplateError
from pie_edge.tokenizer import ChatTemplate, Tokenizer
from tests.support import chat_templates as t
from tests.support.vocabularies import byte_level


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def render(source: str, *messages: Any, tools: Any = None, cue: bool = False, **variables: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).render(messages, tools, cue, **variables)


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "add", "arguments": arguments}}


def test_whitespace_of_blocks_is_trimmed_as_templates_expect() -> None:
    source = "{% for message in messages %}\n    {% if true %}\n{{ message.content }}\n    {% endif %}\n{% endfor %}\n"
    assert render(source, user("a"), user("b")) == "a\nb\n"


def test_loop_controls_generation_blocks_and_the_usual_globals_are_there() -> None:
    assert (
        render(
            "{% for n in range(9) %}{% if n == 2 %}{% continue %}{% endif %}{% if n == 4 %}{% break %}{% endif %}"
            "{{ n }}{% endfor %}",
            user(""),
        )
        == "013"
    )
    assert render("a{% generation %}{{ messages[0].content }}{% endgeneration %}b", user("x")) == "axb"
    assert (
        render("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}{{ joiner is defined }}", user("")) == "2True"
    )
    clock = ChatTemplate("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2024, 7, 26))
    assert clock.render([user("")]) == "26 Jul 2024"


def test_json_keeps_unicode_and_html_as_they_are() -> None:
    source = "{{ x | tojson }} {{ x | tojson(indent=1) }} {{ x | tojson(separators=(',', ':')) }}"
    source += " {{ x | tojson(ensure_ascii=true) }}"
    assert render(source, user(""), x={"é": "<a>"}) == ('{"é": "<a>"} {\n "é": "<a>"\n} {"é":"<a>"} {"\\u00e9": "<a>"}')
    assert render("{{ x | tojson(sort_keys=true) }}{{ x | tojson }}", user(""), x={"b": 1, "a": 2}) == (
        '{"a": 2, "b": 1}{"b": 1, "a": 2}'
    )


def test_loops_know_their_first_last_length_and_neighbours() -> None:
    source = (
        "{% for m in messages %}{{ loop.first }}{{ loop.last }}{{ loop.index }}/{{ loop.length }}{{ loop.revindex0 }}"
        "{{ loop.previtem.content if loop.previtem }}{{ loop.nextitem.content if loop.nextitem }} {% endfor %}"
    )
    assert render(source, user("a"), user("b")) == "TrueFalse1/21b FalseTrue2/20a "


def test_variables_and_special_tokens_reach_the_template() -> None:
    source = "{{ bos_token }}{{ 'T' if enable_thinking else 'F' }}{{ missing is defined }}{{ eos_token }}"
    assert render(source, user(""), enable_thinking=True) == "<s>TFalse</s>"
    assert ChatTemplate(source).render([user("")]) == "FFalse"


def test_a_tokenizers_special_tokens_are_what_its_template_knows() -> None:
    metadata = byte_level(["<s>", "</s>"], bos_token_id=0, eos_token_id=1)
    metadata["tokenizer.chat_template"] = "{{ bos_token }}|{{ eos_token }}"
    assert ChatTemplate.from_gguf(metadata, Tokenizer.from_gguf(metadata)).render([user("")]) == "<s>|</s>"


NAMED = {"default": "plain", "tool_use": "{{ 'with ' + tools[0].name }}", "rag": "documents"}
TOKENIZER = Tokenizer.from_gguf(byte_level())


def test_named_templates_are_chosen_by_whether_there_are_tools() -> None:
    gguf = {"tokenizer.chat_template": "plain", "tokenizer.chat_templates": ["tool_use", "rag"]}
    gguf |= {f"tokenizer.chat_template.{name}": NAMED[name] for name in ("tool_use", "rag")}
    config = {"chat_template": [{"name": name, "template": text} for name, text in NAMED.items()]}
    files = {"default": "file", "tool_use": NAMED["tool_use"]}
    for template, plain in (
        (ChatTemplate.from_gguf(gguf, TOKENIZER), "plain"),
        (ChatTemplate.from_config(config, TOKENIZER), "plain"),
        (ChatTemplate.from_config({}, TOKENIZER, files), "file"),
        (ChatTemplate.from_config(config, TOKENIZER, {"default": "file"}), "file"),
    ):
        assert template.render([user("")]) == plain
        assert template.render([user("")], []) == plain
        assert template.render([user("")], [{"name": "x"}]) == "with x"
    assert ChatTemplate.from_config({"chat_template": "one"}, TOKENIZER).render([user("")]) == "one"


@pytest.mark.parametrize("given", [{}, {"chat_template": None}, {"chat_template": ""}, {"chat_template": []}])
def test_a_model_without_a_template_says_what_to_do_instead(given: dict[str, Any]) -> None:
    with pytest.raises(TemplateError, match=r"no chat template.*use prefix\(\) and encode"):
        ChatTemplate.from_config(given, TOKENIZER)
    with pytest.raises(TemplateError, match=r"no chat template.*use prefix\(\) and encode"):
        ChatTemplate.from_gguf({f"tokenizer.{key}": value for key, value in given.items()}, TOKENIZER)


def test_a_model_with_named_templates_only_names_them() -> None:
    with pytest.raises(TemplateError, match="no default chat template, only rag, tool_use"):
        ChatTemplate({"tool_use": "x", "rag": "y"}).render([user("")])


# The shapes of messages that clients send.
def test_null_content_is_empty_to_a_template_that_does_not_ask() -> None:
    assert render(t.CHATML, user(None), cue=True).endswith("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n")
    assert render("{{ messages[0].content }}{{ x }}", {"role": "user"}, x=None) == ""


def test_null_content_reaches_a_template_that_asks_and_arguments_are_text_to_it() -> None:
    expected = '<user>1+1<call>add{"a": 1}'
    for arguments in ('{"a": 1}', {"a": 1}):
        assert render(t.NULLABLE, user("1+1"), assistant(None, tool_calls=[call(arguments)])) == expected
    no_content = {"role": "assistant", "tool_calls": [call("{}")]}
    assert render(t.NULLABLE, user(None), no_content) == "<user><call>add{}"
    compared = (
        "{% for m in messages %}{% if m['content'] == none %}{{ m.tool_calls[0].function.name }}"
        "{{ m.tool_calls[0].function.arguments }}{% else %}{{ m['content'] + '.' }}{% endif %}{% endfor %}"
    )
    assert render(compared, user("1+1"), assistant(None, tool_calls=[call("{}")])) == "1+1.add{}"


def test_an_answer_that_is_null_is_no_call_and_empty() -> None:
    assert (
        render("{% for m in messages %}<{{ m.content is none }}{{ m.content }}>{% endfor %}", assistant(None))
        == "<False>"
    )


def test_arguments_hold_no_number_that_json_hasn_t() -> None:
    def written(arguments: str) -> str:
        return render(t.THINKING, user("q"), assistant(None, tool_calls=[call(arguments)]))

    assert '"arguments": {"a": 1.7976931348623157e+308}}' in written('{"a": 1e999}')
    assert "Infinity" not in written('{"a": [1e999]}')


def test_arguments_are_objects_to_a_template_that_writes_them_as_json() -> None:
    for arguments in ('{"é": 1}', {"é": 1}):
        rendered = render(t.THINKING, user("q"), assistant(None, tool_calls=[call(arguments)]))
        assert rendered.endswith('{"name": "add", "arguments": {"é": 1}}</tool_call>{"é": 1}<|im_end|>\n')
    assert '"not json"' in render(t.THINKING, user("q"), assistant("", tool_calls=[call("not json")]))


def test_empty_lists_of_calls_and_tools_are_none() -> None:
    asks = "{{ 'tool_calls' in messages[0] }}{{ tools is none }}"
    assert render(asks, assistant("hi", tool_calls=[]), tools=[]) == "FalseTrue"
    assert render(asks, assistant("hi", tool_calls=None)) == "FalseTrue"
    called = asks + "{{ messages[0].tool_calls[0].function.name }}"
    assert render(called, assistant("hi", tool_calls=[call("{}")]), tools=[{"name": "x"}]) == "TrueFalseadd"


def test_parts_are_joined_for_a_template_that_takes_strings() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]
    assert "user\na\nb\nc<|im_end|>" in render(t.CHATML, user(parts))
    assert "user\n<|im_end|>" in render(t.CHATML, user([]))


@pytest.mark.parametrize("source", [t.CHATML, t.PARTS, t.ONLY_PARTS])
@pytest.mark.parametrize("kind", ["image", "image_url", "input_audio", "video", "file", None])
def test_what_is_no_text_is_refused_by_name_whatever_the_template_would_write(source: str, kind: Any) -> None:
    with pytest.raises(TemplateError, match=rf"message 1 has a part of type {kind!r}, .*take text only; give the text"):
        render(source, user("a"), user([{"type": "text", "text": "b"}, {"type": kind}]))


def test_parts_stay_for_a_template_that_takes_them_and_strings_become_parts_where_it_takes_nothing_else() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "c"}]
    assert render(t.PARTS, user(parts), user("b")) == "user:acuser:b"
    assert render(t.ONLY_PARTS, user("a"), user([{"type": "text", "text": "b"}])) == "<text>a<text>b"


def test_late_and_repeated_system_messages_render_or_are_refused_by_the_template() -> None:
    late = (user("q"), assistant("a"), {"role": "system", "content": "s"})
    assert "<|im_start|>system\ns<|im_end|>" in render(t.CHATML, *late)
    with pytest.raises(TemplateError, match="refuses these messages: roles must alternate, starting with the user"):
        render(t.INSTRUCT, *late)


@pytest.mark.parametrize("message", ["text", 3, None, {}, {"content": "x"}, {"role": 1, "content": "x"}])
def test_what_is_no_message_is_refused_by_number(message: Any) -> None:
    with pytest.raises(TemplateError, match=r"message 1 is .*; a message is an object with a role and content"):
        render(t.CHATML, user("x"), message)


@pytest.mark.parametrize("content", [3, True, {"a": 1}])
def test_content_that_is_no_text_is_refused(content: Any) -> None:
    with pytest.raises(TemplateError, match=r"message 0 has \w+ content; give a string or a list of parts"):
        render(t.CHATML, user(content))


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(TemplateError, match="no messages"):
        render(t.CHATML)


def test_what_a_template_would_leave_out_is_refused() -> None:
    with pytest.raises(TemplateError, match="no place for tools; describe them in a system message"):
        render(t.CHATML, user("x"), tools=[{"name": "f"}])
    with pytest.raises(TemplateError, match="message 1 calls tools, and this model's chat template has no place"):
        render(t.CHATML, user("x"), assistant("", tool_calls=[call("{}")]))
    assert render(t.TOOLS, user("x"), tools=[{"name": "f"}]) == '<tools>{\n  "name": "f"\n}user:x'
    first = "{% for m in messages %}{{ m.content }}{{ m.tool_calls[0].function.name if m.tool_calls }}{% endfor %}"
    assert render(first, user("x"), assistant("", tool_calls=[call("{}")])) == "xadd"
    other = {"function": {"name": "other", "arguments": "{}"}}
    with pytest.raises(
        TemplateError, match="message 1 calls 'other', and .* leaves that call out .* message of its own"
    ):
        render(first, user("x"), assistant("", tool_calls=[call("{}"), other]))


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("f", "tool 1 is 'f'; a tool is an object with a function's name"),
        ({}, "tool 1 is {}; a tool is an object"),
        ({"type": "function", "function": {"name": ""}}, "tool 1 is .*; a tool is an object"),
        ({"type": "function", "function": {"description": "x"}}, "tool 1 is .*; a tool is an object"),
        (
            {"name": "f", "parameters": []},
            r"tool 1, 'f', has the parameters \[\]; they are a JSON Schema of type object",
        ),
        ({"name": "f", "parameters": {"type": "string"}}, "tool 1, 'f', has the parameters .* of type object"),
    ],
)
def test_what_is_no_tool_is_refused_by_number(tool: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(t.TOOLS, user("x"), tools=[{"name": "f"}, tool])


@pytest.mark.parametrize("calls", ["f", {"name": "f"}, ["f"], [{}], [{"function": {"name": "f", "arguments": 3}}], 7])
def test_what_is_no_call_is_refused_by_number(calls: Any) -> None:
    with pytest.raises(
        TemplateError, match="message 1 has the tool calls .*; they are a list of objects, each with the name"
    ):
        render(t.THINKING, user("x"), assistant("", tool_calls=calls))
    with pytest.raises(TemplateError, match="message 0 calls tools as 'user'; only the assistant calls them"):
        render(t.THINKING, {**user("x"), "tool_calls": [call("{}")]})


def answer(identity: Any) -> dict[str, Any]:
    return {"role": "tool", "content": "2", "tool_call_id": identity}


def test_an_answer_is_to_a_call_that_was_made_before_it() -> None:
    calling = assistant("", tool_calls=[call("{}"), {**call("{}"), "id": "2"}])
    for good in ("1", "2", None):
        assert "tool\n2" in render(t.THINKING, user("x"), calling, answer(good))
    with pytest.raises(
        TemplateError, match="message 2 answers the tool call '3', and .* no such call .*; the calls are: 1, 2"
    ):
        render(t.THINKING, user("x"), calling, answer("3"))
    for early in ("1", None):
        with pytest.raises(
            TemplateError, match="message 1 answers .*; the calls are: none. Put the assistant's message"
        ):
            render(t.THINKING, user("x"), answer(early), calling)
    assert "tool\n2" in render(t.CHATML, user("x"), answer("3"))  # its calls are in the text


def test_the_callers_messages_are_left_alone() -> None:
    messages = [user([{"type": "text", "text": "a"}]), assistant(None, tool_calls=[call('{"a": 1}')])]
    before = repr(messages)
    ChatTemplate(t.THINKING).render(messages)
    assert repr(messages) == before


BROKEN = [
    ("a\nb {% for x in %}", "broken at line 2: Expected an expression"),
    ("{{ x", "broken at line 1"),
    ("{% if x %}", "broken at line 1: Unexpected end of template"),
    ("{% include 'other' %}", "fails on these messages at line 1: .*"),
    ("{{ x | nofilter }}", "broken at line 1: No filter named 'nofilter'"),
    ("x\ny {{ messages[0].content + 1 }}", "fails on these messages at line 2: TypeError"),
    ("{{ messages[0].a.b }}", "fails on these messages at line 1: UndefinedError"),
    ("{{ 1 / 0 }}", "ZeroDivisionError"),
    ("{{ raise_exception('not\n this') }}", "refuses these messages: not\n this"),
    ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    ("{{ messages.append(1) }}", "SecurityError"),
    ("{{ raise_exception.__globals__.x }}", "SecurityError"),
    ("{{ self.__init__.__globals__ }}", "SecurityError"),
]
EXCESSIVE = [
    (
        "{% for a in range(99999) %}\n{% for b in range(99999) %}{% endfor %}{% endfor %}",
        r"at line \d: it takes more than",
    ),
    ("{% for a in range(10**9) %}{% endfor %}", "Range too big"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
    ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}", "it takes more than"),
    ("{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}", "its text has more than"),
    ("{{ 'x' * 10**9 }}", "a value would have more than"),
    ("{{ [1] * 10**9 }}", "a value would have more than"),
    ("{{ 10 ** 1000000000 }}", "a value would have more than"),
    ("{% set s = namespace(v='ab') %}{% for a in range(60) %}{% set s.v = s.v + s.v %}{% endfor %}", "a value would"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("source", "message"), BROKEN + EXCESSIVE)
def test_a_bad_template_is_a_typed_error_that_says_where_and_why(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(source, user("x"))


def test_ordinary_arithmetic_is_untouched() -> None:
    assert render("{{ 3 * 4 }}{{ 2 ** 10 }}{{ 1 + 2 }}{{ 1.5 * 2 }}{{ 'ab' * 2 }}{{ [1] + [2] }}", user("")) == (
        "12102433.0abab[1, 2]"
    )


def test_a_template_counts_anew_for_each_rendering() -> None:
    template = ChatTemplate("{% for a in range(90000) %}{% endfor %}ok")
    assert {template.render([user("")]) for _ in range(15)} == {"ok"}
