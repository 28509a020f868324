"""The trait *Introspective* from inside of an inferlet: what its passes attended to, against whole passes of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge import errors as ours
from pie_edge.control.engine import Engine
from tests.backend.test_observation import MODEL, Blind, masses
from tests.host.hosting import finish
from tests.host.test_level1 import HEAD
from tests.host.tiny_hosting import on_tiny, run_tiny
from tests.support.oracle_run import log_probabilities, whole_pass_without
from tests.support.tiny import PAGE
from tests.support.tiny_oracle import greedy
from tests.support.tiny_text import TinyTokenizer

SNAPKV = Path(__file__).resolve().parents[2] / "inferlets" / "snapkv" / "main.py"

TOKENS = [(5 * i + i * i) % 64 for i in range(30)]
LEVEL_2 = f"""
from inferlet import errors, model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

TOKENS = {TOKENS}
"""
PASS = """
context, pipe, step = WorkingSet(tokens=64), Pipeline(), ForwardPass()
step.embed(TOKENS)
step.bind_state(context, context.geometry(0, len(TOKENS)))
"""


def program(head: str, body: str) -> str:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"{head}\nasync def main(input):\n{lines}\n"


def result(head: str, body: str, **options: Any) -> Any:
    ended = run_tiny(program(head, body), **options)
    assert ended.error is None, ended.traceback or ended.error
    return ended.result


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_model_says_that_it_can_be_looked_into_and_how_many_layers_it_has() -> None:
    traits, layers, names = result(
        HEAD, "return sorted(available_traits()), attention_layers(), model.with_traits('introspective', 'forward')"
    )
    assert traits == ["allocate", "forward", "input-text", "introspective", "output-text", "tokenize"]
    assert (layers, names) == (2, ["tiny"])


def test_level_1_gives_the_masses_of_an_output_beside_its_distribution() -> None:
    found, best = result(
        HEAD,
        f"""
kv, embeds, outs = alloc_kvpage(tokens=32), alloc_emb(30), alloc_emb(2)
embed_txt(embeds, {TOKENS}, range(30))
forward_observed([0, 1], kv[:0], embeds, kv[:30], outs)
return [await attention_mass(out) for out in outs], (await get_next_dist(outs[1])).max_index()
""",
    )
    close(found, masses(TOKENS, (0, 1), (28, 29)))
    assert best == greedy(TOKENS, 1)[0]


def test_level_2_observes_the_last_token_by_itself_and_others_beside_an_epilogue() -> None:
    last, some, best = result(
        LEVEL_2,
        PASS
        + """
seen = step.observe([1])
pipe.submit(step)
last = await seen
again = ForwardPass()
again.embed(TOKENS[20:])
again.bind_state(context, context.geometry(20, 30))
best, seen = again.epilogue(lambda: reduce_argmax(intrinsics.logits())), again.observe((0, 1), rows=[0, -2])
pipe.submit(again)
return last, await seen, (await best, await best)
""",
    )
    close(last, masses(TOKENS, (1,)))
    close(some, masses(TOKENS, (0, 1), (20, 28)))
    assert best == greedy(TOKENS, 1) * 2


@pytest.mark.parametrize("keep", [0, 3, 20])
def test_the_example_keeps_the_heaviest_pages_and_goes_on_over_those_alone(keep: int) -> None:
    prompt = "the ringer stops at no one. a test of it all: 0123456789 the end, yes? no!"
    tokens = [1, *TinyTokenizer().encode(prompt)]
    ended = run_tiny(SNAPKV, {"prompt": prompt, "keep": keep, "max_tokens": 9})
    assert ended.error is None, ended.traceback
    wanted = masses(tokens, (0, 1), range(len(tokens) - 16, len(tokens))).mean(axis=0)
    close(ended.result["weights"], wanted)
    pages = len(wanted)
    middle = sorted(range(1, pages - 3), key=lambda page: -wanted[page])[:keep]
    kept = sorted({0, *middle, *range(pages - 3, pages)})
    assert ended.result["kept"] == kept
    hidden = [place for place in range(len(tokens)) if place // PAGE not in kept]
    answer: list[int] = []
    while len(answer) < 9 and 2 not in answer:
        whole = whole_pass_without(tokens + answer, hidden, len(tokens))
        answer.append(int(log_probabilities(MODEL, tokens + answer, whole)[-1].argmax()))
    assert ended.result["text"] == TinyTokenizer().decode(answer)


REFUSED = {
    "no layer": ("step.observe([])", "InvalidHandle", "observes no layer"),
    "a layer beyond the last": ("step.observe([2])", "InvalidHandle", "observes layer 2; the model has layers 0…1"),
    "a negative layer": ("step.observe([-1])", "InvalidHandle", "a layer to observe is -1"),
    "a layer twice": ("step.observe([0, 0])", "InvalidHandle", "one of them twice"),
    "no row": ("step.observe([0], rows=[])", "InvalidHandle", "of no row"),
    "a row beyond the last": ("step.observe([0], rows=[30])", "InvalidHandle", "rows [30] are observed and 30 tokens"),
    "rows in no order": ("step.observe([0], rows=[3, 1])", "InvalidHandle", "rows [3, 1] are observed; name each once"),
    "rows that don't fit a step": ("step.observe([0], rows=[0])", "ContextOverflow", "reaches 30 tokens back"),
    "an observation twice": ("step.observe([0]); step.observe([1])", "UsageError", "observed already"),
    "an observation that nobody submitted": (
        "await step.observe([0])",
        "UsageError",
        "observation's pass wasn't submitted",
    ),
}


@pytest.fixture(scope="module")
def refusals() -> dict[str, Any]:
    async def body(host: Any, engine: Engine) -> dict[str, Any]:
        found = {}
        for case, (statement, _, _) in REFUSED.items():
            tried = f"""
try:
    {statement}
    pipe.submit(step)
    await step._observation
except errors.PieError as error:
    return type(error).__name__, error.code, str(error)
"""
            found[case] = await finish(host, program(LEVEL_2, PASS + tried), name="program")
        return found

    return on_tiny(body, settings={"rows": 16})


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_observed_is_refused(case: str, refusals: dict[str, Any]) -> None:
    _, kind, said = REFUSED[case]
    ended = refusals[case]
    assert ended.error is None, ended.traceback
    assert ended.result is not None, "it was allowed"
    assert ended.result[:2] == [kind, getattr(ours, kind).code]
    assert said in ended.result[2]


def test_where_the_device_cannot_observe_the_trait_is_absent_and_the_refusal_names_the_backend() -> None:
    told = result(
        HEAD + LEVEL_2,
        PASS
        + """
told = [sorted(available_traits()), model.with_traits("introspective"), attention_layers()]
kv, e, _ = prefill([3, 1, 4])
calls = [lambda: forward_observed([0], kv[:3], e[:1], kv[3:4], e[1])]
for call in calls:
    try:
        call()
    except errors.Unsupported as error:
        told.append(str(error))
seen = step.observe([0])
pipe.submit(step)
try:
    await seen
except errors.Unsupported as error:
    told.append(str(error))
return told
""",
        backend=Blind(),
    )
    said = "program observes attention, and the reference backend has no trait introspective here; ask available_traits first"
    assert told == [["allocate", "forward", "input-text", "output-text", "tokenize"], [], 0, said, said]
