"""Real templates over every shape of conversation, beside what `transformers` makes of them (``scripts/chat-oracle``)."""

from __future__ import annotations

import functools

import pytest

from pie_edge.errors import TemplateError
from pie_edge.tokenizer import ChatTemplate
from tests.support.chat_matrix import CASES, NOW
from tests.support.chat_rendered import NAMES, fixture

fixture_of = functools.cache(fixture)


@functools.cache
def template_of(name: str) -> ChatTemplate:
    return ChatTemplate(fixture_of(name).source, fixture_of(name).tokens, clock=lambda: NOW)


def ours(name: str, case_name: str) -> tuple[str, str]:
    case = CASES[case_name]
    try:
        return "text", template_of(name).render(case.messages, case.tools, case.cue, **case.variables)
    except TemplateError as error:
        return "error", str(error)


OTHERS = [name for name in CASES if name != "an unknown role"]


@pytest.mark.parametrize("name", NAMES)
def test_conversations_are_rendered_as_by_transformers(name: str) -> None:
    found = fixture_of(name)
    for case in OTHERS:
        kind, expected = found.cases[case]
        got, text = ours(name, case)
        if kind == "text":
            assert (got, text) == (kind, expected), case
        else:
            assert got == "error", (case, kind, text)


@pytest.mark.parametrize("name", NAMES)
def test_a_templates_own_refusal_is_what_the_error_says(name: str) -> None:
    """Unless the conversation is refused already for tools that the template has no place for."""
    found = fixture_of(name)
    refused = {case: text for case, (kind, text) in found.cases.items() if kind == "refused"}
    for case, reason in refused.items():
        if case in OTHERS:
            said = ours(name, case)[1]
            assert f"refuses these messages: {reason}" in said or "no place for" in said, case


@pytest.mark.parametrize("name", NAMES)
def test_calls_and_tools_that_a_template_would_leave_out_are_refused(name: str) -> None:
    found = fixture_of(name)
    for case in (case for case, (kind, _) in found.cases.items() if kind == "ignores"):
        assert "no place for" in (said := ours(name, case)[1]) or "leaves that call out" in said, case


def test_most_templates_render_most_conversations() -> None:
    """The fixtures are worth something."""
    kinds = [kind for name in NAMES for kind, _ in fixture_of(name).cases.values()]
    assert len(NAMES) >= 20 and len(CASES) >= 60
    assert kinds.count("text") > 900 and kinds.count("refused") > 40 and kinds.count("fails") < 60


@pytest.mark.parametrize("name", NAMES)
def test_a_role_that_nobody_knows_is_refused(name: str) -> None:
    assert ours(name, "an unknown role") == (
        "error",
        "message 1 has the role 'narrator'; it is one of assistant, developer, system, tool, user",
    )


SWITCHED = {"qwen3", "qwen3.5", "smollm3", "granite3.3"}


@pytest.mark.parametrize("name", NAMES)
def test_thinking_is_switched_where_the_template_can_and_refused_elsewhere(name: str) -> None:
    template = template_of(name)
    if name in SWITCHED:
        on, off = (
            template.render([{"role": "user", "content": "q"}], **template.thinking(is_on)) for is_on in (True, False)
        )
        assert on != off
    else:
        with pytest.raises(TemplateError, match="can't switch thinking on or off"):
            template.thinking(False)
