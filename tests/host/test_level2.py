"""Level 2 from inside of an inferlet: values of all types both ways, and typed errors for bad use."""

from __future__ import annotations

from typing import Any

import pytest

from pie_edge import errors as ours
from pie_edge.control.queue import ForwardCall
from tests.host.hosting import Ended, finish, run, together
from tests.host.model_free import VOCABULARY, Engine, next_token

HEAD = """
import asyncio
from inferlet import chat, errors, model, tokenizer
from inferlet.eta import *

async def step(tokens, function=None, rows=None, room=64, start=0):
    context, step, pipe = WorkingSet(tokens=room), ForwardPass(), Pipeline()
    step.embed(tokens)
    step.bind_state(context, context.geometry(start, start + len(tokens)))
    out = step.epilogue(function, rows=rows) if function else None
    pipe.submit(step)
    return await out if out else None
"""


def one(expression: str, **options: Any) -> Any:
    ended = run(f"{HEAD}\nasync def main(input): return {expression}", **options)
    assert ended.error is None, ended.traceback or ended.error
    return ended.result


BEST = next_token([5, 6])
RESULTS = {
    "a scalar integer": ("lambda: reduce_argmax(intrinsics.logits())", BEST),
    "a scalar float": ("lambda: reduce_max(intrinsics.logits())", 0.5),
    "a vector": ("lambda: top_k(intrinsics.logits(), 3)[0]", [1.0, 0.5, pytest.approx(1 / 3)]),
    "bools": ("lambda: reduce_argmax(intrinsics.logits()) == 3", [True, False]),
    "a tuple": ("lambda: (reduce_argmax(intrinsics.logits()), reduce_max(intrinsics.logits()))", [BEST, 0.5]),
    "a dict": ("lambda: {'best': reduce_argmax(intrinsics.logits())}", {"best": BEST}),
    "both results of a node": ("lambda: top_k(intrinsics.logits(), 2)", [[1.0, 0.5], [BEST, BEST]]),
    "a float parameter": ("lambda: param(0.25)", 0.25),
    "an integer parameter": ("lambda: param([-1, 2, 2147483647])", [-1, 2, 2147483647]),
    "an unsigned parameter": ("lambda: param([0, 4294967295], 'u32')", [0, 4294967295]),
    "a bool parameter": ("lambda: param([True, False, True])", [True, False, True]),
}


@pytest.mark.parametrize("case", RESULTS)
def test_an_epilogue_gives_what_its_function_returned(case: str) -> None:
    function, expected = RESULTS[case]
    assert one(f"await step([5, 6], {function})") == expected


def test_a_whole_vocabulary_of_logits_arrives_as_a_list() -> None:
    logits = one("await step([5, 6], lambda: intrinsics.logits())")
    assert len(logits) == VOCABULARY
    assert logits.index(1.0) == BEST
    assert sum(logits) == 1.0


def test_rows_are_read_in_the_order_asked_for() -> None:
    last_two = one("await step([5, 6, 7], lambda: intrinsics.logits(2))")
    assert [row.index(1.0) for row in last_two] == [next_token([5, 6]), next_token([5, 6, 7])]
    both = one("await step([5, 6, 7], lambda: reduce_argmax(intrinsics.logits()), rows=[0, 2])")
    assert both == [next_token([5]), next_token([5, 6, 7])]
    first = one("await step([5, 6, 7], lambda: reduce_argmax(intrinsics.logits()), rows=[0])")
    assert first == next_token([5])


def test_the_engine_gets_the_call_as_it_was_built() -> None:
    async def body(host: Any, engine: Engine) -> list[ForwardCall]:
        source = f"{HEAD}\nasync def main(input): await step([5, 6, 7], lambda: param([1.5, 2.5]), rows=[-1], start=3)"
        ended = await finish(host, source)
        assert ended.error is None, ended
        return engine.calls

    [call] = together(body)
    assert (call.tokens, call.start, call.end, call.rows) == ((5, 6, 7), 3, 6, (2,))
    assert len(call.parameters) == 1
    assert memoryview(call.parameters[0]).cast("f").tolist() == [1.5, 2.5]


BAD_USE = {
    "a geometry of another length": (
        "p = ForwardPass(); p.embed([1, 2]); p.bind_state(ws, ws.geometry(0, 3)); Pipeline().submit(p)",
        "InvalidHandle",
        "2 tokens are embedded and geometry(0, 3)",
    ),
    "a working set that is too small": ("ws.geometry(0, 17)", "ContextOverflow", "room for 16 tokens"),
    "a backward geometry": ("ws.geometry(3, 2)", "InvalidHandle", "writes no token"),
    "nothing to write": ("ws.geometry(0, 0)", "InvalidHandle", "is the prompt empty?"),
    "a token beyond the vocabulary": ("ForwardPass().embed([5, 1000])", "InvalidHandle", "token 1000"),
    "a negative token": ("ForwardPass().embed([-1])", "InvalidHandle", "token -1"),
    "text for tokens": ("ForwardPass().embed('ab')", "InvalidHandle", "'a' is a str"),
    "a working set beyond the model": ("WorkingSet(tokens=5000)", "ContextOverflow", "5000 tokens"),
    "more pages than there are": ("[WorkingSet(tokens=4096) for _ in range(9)]", "OutOfPages", "KV pages"),
    "a negative working set": ("WorkingSet(tokens=-1)", "InvalidHandle", "-1 tokens"),
    "a pipeline closed twice": ("p = Pipeline(); p.close(); p.close()", "InvalidHandle", "closed before"),
    "a closed pipeline": ("p = Pipeline(); p.close(); p.submit(ForwardPass())", "InvalidHandle", "was closed"),
    "a working set closed twice": ("ws.close(); ws.close()", "InvalidHandle", "was closed"),
    "a closed working set": ("ws.close(); ForwardPass().bind_state(ws, Geometry(0, 1))", "InvalidHandle", "was closed"),
    "a pass without tokens": ("Pipeline().submit(ForwardPass())", "UsageError", "embeds no token"),
    "a pass without a context": ("p = ForwardPass(); p.embed([1]); Pipeline().submit(p)", "UsageError", "no context"),
    "a pass submitted twice": (
        "p = ForwardPass(); p.embed([1]); p.bind_state(ws, ws.geometry(0, 1)); q = Pipeline(); q.submit(p); q.submit(p)",
        "UsageError",
        "submitted before",
    ),
    "two epilogues": (
        "p = ForwardPass(); p.epilogue(lambda: intrinsics.logits()); p.epilogue(lambda: intrinsics.logits())",
        "UsageError",
        "an epilogue already",
    ),
    "an epilogue that was never submitted": (
        "await ForwardPass().epilogue(lambda: intrinsics.logits())",
        "UsageError",
        "wasn't submitted",
    ),
    "an output taken apart": (
        "ForwardPass().embed(list(ForwardPass().epilogue(lambda: intrinsics.logits())))",
        "UsageError",
        "before it was awaited",
    ),
    "an epilogue that returns nothing": ("ForwardPass().epilogue(lambda: None)", "EpilogueError", "returned None"),
    "an epilogue that the engine refuses": (
        "await step([1], lambda: softmax(intrinsics.logits()))",
        "EpilogueError",
        "main.py:",
    ),
    "more rows than tokens": ("await step([1], lambda: intrinsics.logits(2))", "InvalidHandle", "2 tokens and 1"),
    "a row that isn't there": ("await step([1], lambda: intrinsics.logits(), rows=[1])", "InvalidHandle", "rows [1]"),
    "rows out of order": (
        "await step([1, 2], lambda: intrinsics.logits(), rows=[1, 0])",
        "InvalidHandle",
        "rising order",
    ),
    "fewer rows than the epilogue sees": (
        "await step([1, 2], lambda: intrinsics.logits(2), rows=[1])",
        "UsageError",
        "asks for 2 rows",
    ),
    "discarding pages that aren't there": ("ws.discard(0, 5)", "InvalidHandle", "of 1"),
    "decoding a token that isn't there": ("model.decode([1000])", "InvalidHandle", "token 1000"),
    "a decoder given a token that isn't there": ("tokenizer.Decoder().push(1000)", "InvalidHandle", "token 1000"),
}


@pytest.mark.parametrize("case", BAD_USE)
def test_bad_use_is_a_typed_error_that_the_program_can_catch(case: str) -> None:
    statement, kind, said = BAD_USE[case]
    body = "\n".join("        " + part for part in statement.split("; "))
    source = f"""{HEAD}
async def main(input):
    ws = WorkingSet(tokens=10)
    try:
{body}
    except errors.PieError as error:
        return [type(error).__name__, error.code, str(error)]
"""

    async def inside(host: Any, _: Engine) -> Any:
        return await finish(host, source)

    ended = together(inside, engine=Engine(pages=2000))
    assert ended.error is None, ended.traceback
    name, code, message = ended.result
    assert name == kind
    assert said in message
    assert code == getattr(ours, kind).code


def test_the_engine_s_error_reaches_the_await_of_its_pass() -> None:
    for kind in (ours.DeviceLost, ours.OutOfPages, ours.EpilogueError, ours.Unsupported):

        async def body(host: Any, engine: Engine, kind: type[ours.PieError] = kind) -> Any:
            engine.failure = kind("as the engine said it")
            source = f"""{HEAD}
async def main(input):
    try:
        await step([1], lambda: reduce_argmax(intrinsics.logits()))
    except errors.{kind.__name__} as error:
        return str(error)
"""
            return await finish(host, source)

        assert together(body).result == "as the engine said it"


def test_an_error_of_the_engine_s_that_has_no_class_in_the_sdk_keeps_its_code() -> None:
    async def body(host: Any, engine: Engine) -> Any:
        engine.failure = ours.BadCheckpoint("odd")
        return await finish(host, f"{HEAD}\nasync def main(input): await step([1], lambda: intrinsics.logits())")

    ended: Ended = together(body)
    assert isinstance(ended.error, ours.InferletFailed)
    assert ended.error.cause == "bad-checkpoint"
    assert "inferlet.errors.PieError: odd" in ended.traceback


def test_a_pass_without_an_epilogue_that_fails_is_told_at_the_next_use_of_its_pipeline() -> None:
    source = f"""{HEAD}
async def main(input):
    ws = WorkingSet(tokens=10)
    with Pipeline() as pipe:
        p = ForwardPass()
        p.embed([1])
        p.bind_state(ws, ws.geometry(0, 1))
        pipe.submit(p)
        await asyncio.sleep(0.01)
"""

    async def body(host: Any, engine: Engine) -> Any:
        engine.failure = ours.DeviceLost("gone")
        return await finish(host, source)

    assert getattr(together(body).error, "cause", None) == "device-lost"


def test_working_sets_fork_reserve_and_give_their_pages_back() -> None:
    source = f"""{HEAD}
import gc
async def main(input):
    with WorkingSet(tokens=20) as ws:
        ws.reserve(1)
        capacity = ws.capacity
        p = ForwardPass(); p.embed([5, 6]); p.bind_state(ws, ws.geometry(0, 2)); Pipeline().submit(p)
        copy = ws.fork()  # behind the pass that was submitted before it
        outs = []
        for context in (ws, copy):
            p = ForwardPass(); p.embed([7]); p.bind_state(context, context.geometry(2, 3))
            outs.append(p.epilogue(lambda: reduce_argmax(intrinsics.logits())))
            Pipeline().submit(p)
        same = await outs[0] == await outs[1]
        ws.discard(0, 1)
    del copy, context, p
    gc.collect()
    return [capacity, same]
"""

    async def body(host: Any, engine: Engine) -> Any:
        ended = await finish(host, source + "\n")
        return ended, engine.lowest

    ended, lowest = together(body)
    assert ended.result == [48, True], ended
    assert lowest == 100_000 - 6


def test_a_working_set_that_is_forgotten_gives_its_pages_back_while_the_program_runs() -> None:
    source = f"{HEAD}\nasync def main(input):\n    for _ in range(100): WorkingSet(tokens=160)\n    return 'ok'"

    async def body(host: Any, engine: Engine) -> Any:
        return await finish(host, source)

    assert together(body, engine=Engine(pages=30)).result == "ok"


def test_the_model_and_its_tokenizer_are_known() -> None:
    facts = one(
        "[model.name(), model.architecture(), model.licence(), model.description(), model.vocabulary_size(), "
        "model.context_size(), model.page_size(), tokenizer.bos(), tokenizer.eos()]"
    )
    assert facts == ["model-free", "none", "Apache-2.0", "counts", 1000, 4096, 16, 1, 2]
    declared = one("[model.hidden_size(), model.pooling(), model.sampling(), list(model.facts().suffix)]")
    assert declared == [4, "mean", {"temperature": 0.6, "top_k": 20}, [2]]
    assert one("model.decode(model.encode('grüße \\U0001f600'))") == "grüße \U0001f600"


def test_a_decoder_never_cuts_a_character() -> None:
    source = f"""{HEAD}
async def main(input):
    decoder = chat.Decoder()
    pieces = [decoder.push(token) for token in model.encode("a\\U0001f600b")]
    unfinished = tokenizer.Decoder()
    return [pieces, unfinished.push(model.encode("é")[:1]), unfinished.flush()]
"""
    assert run(source).result == [["a", "", "", "", "\U0001f600", "b"], "", "�"]


def test_the_turns_of_a_chat_are_the_template_s() -> None:
    turns = "chat.prefix() + chat.preamble() + chat.system('s') + chat.user('u') + chat.assistant('a') + chat.cue() + chat.seal()"
    assert one(f"model.decode({turns})") == "<s>s\n<u>u\n<a>a\n<a>\n"
    assert one("[chat.available(), chat.stop_tokens()]") == [True, [2]]


@pytest.mark.parametrize("call", ["system('x')", "user('x')", "assistant('x')", "cue()", "seal()", "preamble()"])
def test_a_model_without_a_template_says_so(call: str) -> None:
    ended = run(f"{HEAD}\nasync def main(input): chat.{call}", template=False)
    assert isinstance(ended.error, ours.InferletFailed)
    assert ended.error.cause == "template"
    assert one("[chat.available(), chat.prefix(), chat.stop_tokens()]", template=False) == [False, [1], [2]]


def test_versions_are_told() -> None:
    from importlib.metadata import version

    ended = run(
        "import inferlet\nfrom inferlet import runtime\ndef main(input): return [runtime.version(), inferlet.__version__]"
    )
    assert ended.result == [version("pie-edge")] * 2
