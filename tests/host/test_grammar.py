"""Constrained generation on a real engine over the tiny random model: what it makes is always valid, whatever surrounds it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pie_edge.host import constraints
from tests.pure.test_grammar_schema import SCHEMAS
from tests.support import tiny_oracle
from tests.support.grammars import validator
from tests.support.native_guest import native
from tests.support.tiny_json import PIECES, TinyJson

from inferlet import Context, Sampler, _host, errors, eta, grammar  # isort: skip
from inferlet.grammar import Grammar, Matcher  # isort: skip

TOKENIZER = TinyJson()
PROMPT = [1, *TOKENIZER.encode("answer")]
Run = Callable[..., Any]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "on": {"type": ["boolean", "null"]}},
    "required": ["name", "age", "on"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "rest": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["a", "rest"],
    "additionalProperties": False,
}
NAMES = ("an object", "anything", "nested arrays", "bounds", "multiples", "additional properties")
WRITABLE = {"a tree": TREE, "a person": PERSON, **{name: SCHEMAS[name] for name in NAMES}}


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(template=True, rows=64, sequences=16, tokenizer=TOKENIZER) as runner:
        yield runner


def filled(seed: int | None = None) -> Context:
    context = Context(seed=seed)
    context.fill("answer")
    return context


def allowed(mask: list[int]) -> set[int]:
    return {token for token in range(len(PIECES)) if mask[token // 32] >> token % 32 & 1}


@pytest.mark.parametrize("name", WRITABLE)
def test_answers_are_valid_by_their_schema(run: Run, name: str) -> None:
    schema = WRITABLE[name]

    async def program() -> list[tuple[str, str | None]]:
        made = Grammar.json_schema(schema)

        async def one(seed: int) -> tuple[str, str | None]:
            context = filled(seed)
            # The tiny model likes everything alike: let it end strings and lists, or it seldom does.
            ends = {token: 3.0 for token, piece in enumerate(PIECES) if piece[:1] in b'"]}'}
            text = await context.generate_until(grammar=made, max_tokens=120, temperature=2.0, logit_bias=ends)
            return text, context.last.finish_reason

        return list(await asyncio.gather(*map(one, range(24))))

    ended = [text for text, reason in run(program) if reason == "stop"]
    assert len(ended) >= 6
    for text in ended:
        validator(schema).validate(json.loads(text))


def test_a_seed_gives_the_same_answer_with_and_without_forced_tokens(run: Run) -> None:
    """Asking for log probabilities gives each forced token a pass of its own, which changes nothing."""

    async def program() -> Any:
        made = Grammar.json_schema(PERSON)
        texts = []
        for logprobs in (None, 2):
            context = filled(7)
            texts.append(await context.generate_until(grammar=made, max_tokens=60, temperature=1.0, logprobs=logprobs))
        return texts, context.last, context.tokens

    (short, long), last, tokens = run(program)
    assert short == long
    # They are the model's own: of all tokens, not of those that were allowed.
    for place, entry in enumerate(last.logprobs):
        raw = tiny_oracle.logprobs_after(tuple(tokens[: len(PROMPT) + place]))
        assert math.isclose(entry.logprob, raw[entry.token], abs_tol=1e-3)
        assert math.isclose(entry.alternatives[0][1], max(raw), abs_tol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"temperature": 1.5, "top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"typical": 0.7},
        {"presence": 1.0, "frequency": 0.5, "repetition": 1.3},
        {"logit_bias": {2: 100.0, 1: 100.0}},
    ],
)
def test_every_sampler_keeps_to_the_grammar(run: Run, settings: dict[str, Any]) -> None:
    async def program() -> str:
        return await filled(3).generate_until(
            Sampler(**settings), grammar=Grammar.regex("(yes|no)( [ab]{2})?"), max_tokens=20
        )

    assert run(program) in {f"{word}{rest}" for word in ("yes", "no") for rest in ("", " aa", " ab", " ba", " bb")}


def test_a_mask_allows_a_token_exactly_if_it_can_be_accepted(run: Run) -> None:
    async def program() -> int:
        looked = 0
        lark = Grammar.lark('start: "a" start? "b"')
        for made in (Grammar.json_schema(PERSON), Grammar.json(), Grammar.regex("[ab]*(true|1[0-9])"), lark):
            matcher = made.matcher()
            for step in range(25):
                if matcher.finished:
                    break
                offered = allowed(matcher.mask())
                taken = set()
                for token in range(len(PIECES)):
                    fork = matcher.fork()
                    try:
                        fork.accept(token)
                    except errors.GrammarError:
                        continue
                    taken.add(token)
                # Where only one text can follow, the mask has the tokens that the tokenizer would write it in.
                assert offered == taken or (offered <= taken and set(matcher.forced[:1]) == offered)
                matcher.accept(sorted(offered - {2})[(7 * step) % len(offered - {2})])
                looked += 1
        return looked

    assert run(program) > 40


def test_control_tokens_are_never_part_of_a_text_and_the_end_only_comes_where_it_may(run: Run) -> None:
    async def program() -> list[set[int]]:
        matcher = Grammar.regex('"(?s:.*)"').matcher()
        inside, ended = [], []
        for token in TOKENIZER.encode('"a<eos>'):
            matcher.accept(token)
            inside.append(allowed(matcher.mask()))
        matcher.accept(TOKENIZER.encode('"'))
        ended.append(allowed(matcher.mask()))
        return [*inside, *ended]

    *inside, ended = run(program)
    assert not any(mask & {0, 1, 2, 3} for mask in inside)
    assert PIECES.index(b"<eos>", 4) in inside[0], "text that looks like one is text"
    assert ended >= {2}


def test_rollback_and_fork_go_back_and_apart(run: Run) -> None:
    async def program() -> None:
        matcher = Grammar.json_schema(PERSON).matcher()
        matcher.accept(TOKENIZER.encode('{"name": "'))
        before = matcher.mask()
        tokens = TOKENIZER.encode('ab", "age": 10')
        matcher.accept(tokens)
        fork = matcher.fork()
        matcher.rollback(len(tokens))
        assert matcher.mask() == before
        fork.accept(TOKENIZER.encode(", "))
        assert fork.mask() != before
        assert matcher.mask() == before
        with pytest.raises(errors.GrammarError, match="can't follow"):
            matcher.accept([*TOKENIZER.encode("a"), 2])
        assert matcher.mask() == before, "of tokens that are refused none is accepted"
        with pytest.raises(errors.GrammarError, match="to be taken back"):
            matcher.rollback(1000)

    run(program)


def test_forks_of_a_context_go_on_with_forks_of_a_matcher(run: Run) -> None:
    async def program() -> Any:
        context, matcher = filled(), Grammar.json_schema(PERSON).matcher()
        begun = await context.generate_until(grammar=matcher, max_tokens=8, temperature=1.0)

        async def branch() -> str:
            fork, own = context.fork(), matcher.fork()
            text = await fork.generate_until(
                grammar=own, max_tokens=150, temperature=1.0, logit_bias={PIECES.index(b'"'): 4.0}
            )
            return text if own.finished else ""

        return begun, await asyncio.gather(*(branch() for _ in range(12)))

    begun, rests = run(program)
    whole = [begun + rest for rest in rests if rest]
    assert len(whole) >= 3
    for text in whole:
        validator(PERSON).validate(json.loads(text))


def test_a_generation_ends_where_its_grammar_does_or_for_length(run: Run) -> None:
    async def program() -> Any:
        found = []
        for made, most in (
            (Grammar.regex("true"), 10),
            (Grammar.json_schema({"const": "ab"}), 10),
            (Grammar.json(), 1),
        ):
            context = filled()
            text = await context.generate_until(grammar=made, max_tokens=most)
            found.append((text, context.last.finish_reason, context.last.usage.generated, len(context.last.tokens)))
        matcher = Grammar.regex("true").matcher()
        matcher.accept(TOKENIZER.encode("true"))
        context = filled()
        found.append((await context.generate_until(grammar=matcher), context.last.finish_reason, 0, 0))
        return found

    true, const, cut, nothing = run(program)
    assert true == ("true", "stop", 1, 1)
    assert const[:2] == ('"ab"', "stop")
    assert cut[1:] == ("length", 1, 1)
    assert nothing == ("", "stop", 0, 0)


def test_forced_tokens_take_no_pass(run: Run) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"const": "ab"}, "age": {"enum": [1, 10]}},
        "required": ["name", "age"],
    }

    async def program() -> Any:
        context = filled()
        text = await context.generate_until(grammar=Grammar.json_schema(schema | {"additionalProperties": False}))
        host: Any = _host.host()
        return text, context.last.usage.generated, host.guest.space.usage.passes

    text, generated, passes = run(program)
    assert json.loads(text)["name"] == "ab"
    assert generated > 6
    assert passes <= 2, "what is left to choose is an age"


def test_stop_strings_leave_the_matcher_where_the_text_ends(run: Run) -> None:
    async def program() -> Any:
        context, matcher = filled(), Grammar.lark('start: "true" ", " "false" ", " "null"').matcher()
        text = await context.generate_until(grammar=matcher, stop=", f")
        rest = await context.generate_until(grammar=matcher)
        return text, rest, matcher.finished

    assert run(program) == ("true", ", false, null", True)


def test_an_epilogue_by_hand_takes_a_matcher_as_its_mask(run: Run) -> None:
    async def program() -> list[int]:
        context, matcher = filled(), Grammar.regex("(true|null)+").matcher()
        made = []
        for _ in range(4):
            token = await context.read(lambda: eta.reduce_argmax(eta.mask_logits(eta.intrinsics.logits(), matcher)))
            matcher.accept(token)
            context.fill([token])
            made.append(token)
        return made

    assert {PIECES[token].decode() for token in run(program)} <= {"true", "null", *"trunel"}


def test_a_slow_grammar_holds_nobody_up_and_gives_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> str:
        return await filled(5).generate_until(grammar=Grammar.json_schema(PERSON), max_tokens=60, temperature=1.0)

    quick = run(program)
    monkeypatch.setattr(constraints, "SLOW", -1.0)
    assert run(program) == quick


def test_no_end_of_forced_tokens_comes_at_once(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        matcher = Grammar.regex("a{600}").matcher()
        at_once = len(matcher.forced)
        return at_once, await context.generate_until(grammar=matcher, max_tokens=200)

    at_once, text = run(program)
    assert at_once == 512
    assert text == 200 * "a"


def test_text_that_the_model_has_no_tokens_for_is_refused(run: Run) -> None:
    async def program() -> None:
        with pytest.raises(errors.GrammarError, match="no text that this model can write"):
            Grammar.json_schema({"const": "xyz"})
        matcher = Grammar.regex("true(x|z)|null").matcher()
        matcher.accept(TOKENIZER.encode("true"))
        with pytest.raises(errors.GrammarError, match="no tokens for the text that has to"):
            matcher.mask()

    run(program)


def test_what_is_wrong_is_told(run: Run) -> None:
    async def program() -> None:
        with pytest.raises(errors.GrammarError, match="'not' at #/not"):
            Grammar.json_schema({"not": {}})
        with pytest.raises(errors.UsageError, match="is no grammar"):
            filled().generate(grammar="start: a")  # type: ignore[arg-type]
        with pytest.raises(errors.UsageError, match="only inside of an epilogue"):
            Grammar.json().matcher().__tensor__()
        with pytest.raises(TypeError):
            Grammar.regex(3)  # type: ignore[arg-type]

    run(program)


def test_the_names_of_the_module_are_those_that_programs_know() -> None:
    assert grammar.__all__ == ["Grammar", "Matcher"]
    assert Matcher.__doc__
