"""Grammars of answers that call tools, in the format that the model itself writes calls in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pie_edge.errors import GrammarError, Unsupported, UsageError
from pie_edge.tokenizer.formats.detect import HARMONY, REASONING, Formats

if TYPE_CHECKING:
    from pie_edge.grammar import Compiler
    from pie_edge.tokenizer import Tokenizer

ANY = '{"type": "object"}'
ANY_TEXT = "/(?s:.*)/"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an answer may be. ``name`` is the one tool that may be called, None for any; with ``text`` it may be a text in place
    of calls, or have one before them; ``several`` is whether there may be more than one call. ``inside``: the prompt has opened
    the model's reasoning."""

    name: str | None
    text: bool
    several: bool
    inside: bool


def tool_grammar(
    compiler: Compiler, tokenizer: Tokenizer, formats: Formats, tools: Sequence[Any], wanted: Wanted
) -> str:
    """In Lark. Raises Unsupported where the model has no format of calls, UsageError for a tool that isn't there, and
    GrammarError for parameters of a ``strict`` tool that can't be enforced; those of others then are any object."""
    functions = [tool.get("function", tool) for tool in tools]
    chosen = [one for one in functions if wanted.name is None or one["name"] == wanted.name]
    if not chosen:
        there = ", ".join(one["name"] for one in functions) or "none"
        raise UsageError(f"a call of {wanted.name or 'a tool'} is asked for, which there isn't; the tools are {there}")
    write = _FORMATS.get(formats.calls)
    if write is None:
        raise Unsupported(
            "this model has no format in which it calls tools, so it can't be made to; ask for JSON instead"
        )
    form = _Form(tokenizer, [(one["name"], _arguments(compiler, one)) for one in chosen], wanted.several)
    thought, answer = form.thought(formats, wanted.inside), _answer(form, write(form), wanted.text)
    form.rule("start", f"{thought} ({answer})".strip())
    return "\n".join(f"{name}: {body}" for name, body in form.rules.items())


def _arguments(compiler: Compiler, function: Mapping[str, Any]) -> str:
    """The schema of a call's arguments, as a part of a grammar."""
    from pie_edge.grammar import Source, inlined

    text = json.dumps({"type": "object", **(function.get("parameters") or {})})
    try:
        compiler.compile(Source("json-schema", text))
    except GrammarError as refused:
        if function.get("strict"):
            raise GrammarError(f"the tool {function['name']!r}: {refused}") from None
        text = ANY
    return inlined(text)


class _Form:
    """A grammar in the making: ``rules`` by name."""

    def __init__(self, tokenizer: Tokenizer, tools: Sequence[tuple[str, str]], several: bool) -> None:
        self.several = several
        self.rules: dict[str, str] = {}
        self._tools = tools
        self._tokenizer = tokenizer

    def is_control(self, name: str) -> bool:
        return self._tokenizer.control(name) is not None

    def marker(self, name: str) -> str:
        """A control token, or the text that it is in a vocabulary that has no such token."""
        token = self._tokenizer.control(name)
        return quoted(name) if token is None else f"<[{token}]>"

    def rule(self, name: str, body: str) -> str:
        self.rules[name] = body
        return name.partition("[")[0]

    def objects(self, key: str) -> str:
        """A call as a JSON object; ``key`` is that of the arguments."""

        def written(name: str, given: str) -> str:
            head = '{"name": ' + quoted(name) + f', "{key}": '
            return f"{quoted(head)} {given} {quoted('}')}"

        return self.each(written)

    def each(self, write: Callable[[str, str], str]) -> str:
        """One call, of any of the tools."""
        calls = []
        for number, (name, schema) in enumerate(self._tools):
            given = self.rule(f"arguments_{number}", f"%json {schema}")
            calls.append(self.rule(f"call_{number}", write(name, given)))
        return self.rule("call", " | ".join(calls))

    def more(self, one: str, between: str) -> str:
        """What may follow a call: others, each after what stands between two."""
        return f"({between} {one})*" if self.several else ""

    def text(self, begins: str = r"(?s:.*)", never: Sequence[str] = ()) -> str:
        """A text; ``never`` are parts that it hasn't."""
        parts = [f"/{begins}/", *(f"~/(?s:.*){escaped(part)}(?s:.*)/" for part in never)]
        return self.rule("TEXT", " & ".join(parts))

    def thought(self, formats: Formats, inside: bool) -> str:
        """The reasoning that may come first, or has to be ended."""
        if HARMONY in (formats.reasoning, formats.calls):
            begin = f"{self.marker('<|channel|>')} {quoted('analysis')} {self.marker('<|message|>')}"
            end = f"{self.marker('<|end|>')} {self.marker('<|start|>')} {quoted('assistant')}"
            return f"{self.rule('thought', f'{begin} {ANY_TEXT} {end}')}?"
        tags = REASONING.get(formats.reasoning)
        if tags is None:
            return ""
        if self.is_control(tags.close):
            rest = f"{ANY_TEXT} {self.marker(tags.close)}"
        else:
            rest = self.rule("thinking[lazy]", f"/(?s:.*){escaped(tags.close)}/")
        whole = f"{'' if inside else self.marker(tags.open)} {rest} /\\n{{0,2}}/"
        return self.rule("thought", whole.strip()) + ("" if inside else "?")


@dataclass(frozen=True, slots=True)
class _Calls:
    """All calls of an answer: the marker that opens them, and what follows it. ``text`` is what an answer without calls is, and
    ``before`` whether such a text may also stand before calls."""

    opener: str
    rest: str
    text: str
    before: bool = True


def _answer(form: _Form, calls: _Calls, with_text: bool) -> str:
    marker = form.marker(calls.opener) if calls.opener else ""
    whole = form.rule("calls", f"{marker} {calls.rest}".strip())
    if not with_text:
        return whole
    if not calls.before:
        return f'{calls.text} | "" | {whole}'
    if form.is_control(calls.opener):
        return f"{calls.text} {whole}?"
    # A marker that is text ends the text as soon as it is there.
    head = form.rule("head[lazy]", f"/(?s:.*){escaped(calls.opener)}/")
    return f"{calls.text} | {head} {calls.rest}"


def quoted(text: str) -> str:
    """A literal of Lark, or of JSON."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """Of a regular expression of Lark."""
    return re.sub(r"[][\\^$.|?*+(){}/]", r"\\\g<0>", text)


def _hermes(form: _Form) -> _Calls:
    opener, closer = "<tool_call>", form.marker("</tool_call>")
    one = form.rule("one", f"{form.objects('arguments')}")
    tagged = form.rule("tagged", f'"\\n" {one} "\\n" {closer}')
    return _Calls(
        opener, f"{tagged} {form.more(tagged, quoted(chr(10)) + ' ' + form.marker(opener))}", _plain(form, opener)
    )


def _listed(opener: str, closer: str) -> Callable[[_Form], _Calls]:
    def write(form: _Form) -> _Calls:
        one = form.objects("arguments")
        end = form.marker(closer) if form.is_control(closer) else ""
        return _Calls(
            opener, f"""{quoted("[")} {one} {form.more(one, quoted(", "))} {quoted("]")} {end}""", _plain(form, opener)
        )

    return write


def _mistral(form: _Form) -> _Calls:
    opener = "[TOOL_CALLS]"
    if not form.is_control("[ARGS]"):
        return _listed(opener, "")(form)
    one = form.each(lambda name, given: f"{quoted(name)} {form.marker('[ARGS]')} {given}")
    return _Calls(opener, f"{one} {form.more(one, form.marker(opener))}", _plain(form, opener))


def _bare(*never: str) -> Callable[[_Form], _Calls]:
    """Calls without a marker: a text doesn't begin as they do, nor has the marked ones that the decoder knows as well."""

    def write(form: _Form) -> _Calls:
        one = form.objects("parameters")
        several = f" | {quoted('[')} {one} ({quoted(', ')} {one})+ {quoted(']')}" if form.several else ""
        return _Calls("", f"({one}{several})", form.text(r"[ \n\t]*[^ \n\t{\[](?s:.*)", never), before=False)

    return write


def _harmony(form: _Form) -> _Calls:
    """One call: the token that ends it ends the turn."""
    channel, message = form.marker("<|channel|>"), form.marker("<|message|>")
    kind = f"{form.marker('<|constrain|>')} {quoted('json')} {message}"
    one = form.each(lambda name, given: f"{quoted(f'commentary to=functions.{name} ')} {kind} {given}")
    final = form.rule("final", f"{channel} {quoted('final')} {message} {ANY_TEXT}")
    return _Calls("<|channel|>", one, final, before=False)


def _plain(form: _Form, opener: str) -> str:
    return form.text(never=() if form.is_control(opener) else (opener,))


_FORMATS: Mapping[str, Callable[[_Form], _Calls]] = {
    "hermes": _hermes,
    "json-list": _listed("<|tool_call|>", "<|/tool_call|>"),
    "mistral": _mistral,
    "pythonic": _listed("<|tool_call_start|>", "<|tool_call_end|>"),
    "llama": _bare(),
    "gemma": _bare("```json", "```tool_code"),
    HARMONY: _harmony,
}
"""What writes the calls of each format. The format's decoder reads all of it: also JSON where a model is used to Python."""
