"""Every epilogue node on every device, against the node reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pie_edge.program.node_reference import run_nodes
from pie_edge.program.ops import Program, Role
from pie_edge.sampling import Pool, parse
from tests.backend import openers
from tests.backend.device import put
from tests.pure.test_sampling_nodes import RUNS, of_one_node
from tests.support.epilogue_device import Session
from tests.support.epilogue_graphs import Case, cases
from tests.support.epilogues import Wire, arrays_of, check_results, random_arrays

PAST = 4_000_000_000
"""No slot of the engine's tokens."""


@dataclass(frozen=True)
class Device:
    every: int
    """Of the cases of all nodes: where kernels are text, each is a few to compile."""
    examples: int


DEVICES = {
    "vulkan": Device(1, 40),
    "wgpu": Device(4, 15),
    "cuda": Device(8, 8),
    "metal-emulated": Device(8, 8),
    # On MLX's CPU device NumPy runs epilogues.
    **({"metal": Device(1, 20)} if sys.platform == "darwin" else {}),
}


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(device: str) -> Iterator[Session]:
    opened = Session(openers.named(device)())
    yield opened
    opened.close()


def check(session: Session, program: Program, arrays: dict[str, Any]) -> None:
    check_results(session.run(program, arrays), program, arrays)


def node_runs() -> Iterator[Any]:
    for name, device in DEVICES.items():
        some = [run for number, run in enumerate(RUNS) if number % device.every == 0 or run[0] == "hidden"]
        for number, run in enumerate(some):
            yield pytest.param(name, run, id=f"{name}-{number}-{run[0]}")


@pytest.mark.parametrize(("device", "node"), tuple(node_runs()), indirect=["device"])
def test_a_node_means_what_the_reference_says(session: Session, node: Any) -> None:
    check(session, *arrays_of(*of_one_node(node), spare=2))


ODD = np.float32([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e30, -1e30, 0.5, -0.5])
CONSTANTS = ("0.0", "-0.0", "1.0", "-1.0", "inf", "-inf")


def odd_epilogue() -> str:
    """All arithmetic of logits and constants that a compiler likes to simplify."""
    wire = Wire()
    x, outputs = wire.add("logits"), list[int]()
    numbers = [wire.add("constant", value=c if "inf" in c else float(c)) for c in CONSTANTS]
    for name in ("add", "sub", "mul", "div"):
        outputs += [wire.add(name, x, x), wire.add(name, x, wire.add("neg", x))]
        outputs += [wire.add(name, *pair) for c in numbers for pair in ((x, c), (c, x))]
    nothing = wire.add("sub", numbers[2], numbers[2])
    outputs += [wire.add("mul", x, nothing), wire.add("mul", outputs[4], numbers[3])]
    outputs += [wire.add(name, x) for name in ("neg", "abs", "sign", "sqrt", "tanh", "floor", "ceil", "round")]
    rows = [wire.add("reshape", output, shape=[1, len(ODD)]) for output in outputs]
    return wire.text(*(wire.add("concat", *rows[first : first + 50], axis=0) for first in range(0, len(rows), 50)))


@pytest.mark.parametrize("device", ["vulkan", "cuda", "metal-emulated"], indirect=True)
def test_signs_of_zero_and_infinities_are_what_arithmetic_makes_of_them_whatever_a_driver_simplifies(
    session: Session,
) -> None:
    """WGSL lets a compiler take it that there are none."""
    if not getattr(session.backend._live.facts, "preserves_special", True):
        pytest.skip("this device doesn't promise to keep them")
    epilogue = parse(odd_epilogue(), vocabulary=len(ODD), rows=1)
    program, arrays = random_arrays(epilogue, [], 1, 0, seed=0)
    arrays["logits"] = np.broadcast_to(ODD, arrays["logits"].shape).copy()
    with np.errstate(all="ignore"):
        wanted = np.concatenate(list(run_nodes(program, arrays).values()), axis=1)
    found = np.concatenate(list(session.run(program, arrays).values()), axis=1)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    known = ~np.isnan(wanted)
    np.testing.assert_allclose(found[known], wanted[known], rtol=3e-6)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(wanted)[known])


def test_any_epilogue_means_what_the_reference_says(session: Session, device: str) -> None:
    @settings(max_examples=DEVICES[device].examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases(), seed=st.integers(0, 2**32 - 1))
    def agrees(case: Case, seed: int) -> None:
        epilogue = parse(case.text, vocabulary=case.vocabulary, rows=case.rows)
        parameters = [(given.dtype, given.shape, given.bound) for given in case.parameters]
        check(session, *random_arrays(epilogue, parameters, passes=2, spare=1, seed=seed))

    agrees()


@pytest.mark.parametrize("given", [True, False], ids=["a given index", "a computed index"])
def test_what_a_kernel_stored_is_gathered_by_an_index_that_lies_elsewhere(session: Session, given: bool) -> None:
    wire = Wire()
    x = wire.add("logits")
    sums, index = wire.add("cumsum", x), wire.parameter("u32", [3]) if given else wire.add("reduce_argmax", x)
    epilogue = parse(wire.text(wire.add("gather", sums, index)), vocabulary=37, rows=1)
    check(session, *random_arrays(epilogue, [("u32", (3,), 30)] if given else [], passes=2, spare=1, seed=5))


def sampling(vocabulary: int) -> Any:
    """Temperature, top-k and top-p by parameters: a preset."""
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.parameter("f32", []))
    edge = wire.add("kth_largest", x, wire.parameter("u32", []), keepdims=True)
    x = wire.add("select", wire.add("ge", x, edge), x, wire.add("constant", value="-inf"))
    edge = wire.add("nucleus", x, wire.parameter("f32", []), keepdims=True)
    x = wire.add("select", wire.add("ge", x, edge), x, wire.add("constant", value="-inf"))
    return parse(wire.text(wire.add("gumbel_max", x)), vocabulary=vocabulary, rows=1)


@pytest.mark.parametrize("preset", [True, False], ids=["by hand", "by the planner"])
@pytest.mark.parametrize("vocabulary", [301, 1024])
def test_a_preset_draws_the_reference_tokens(session: Session, preset: bool, vocabulary: int) -> None:
    epilogue = sampling(vocabulary)
    program, arrays = random_arrays(epilogue, [("f32", (), 3), ("u32", (), 40), ("f32", (), 1)], 6, 1, seed=4)
    arrays |= {"param0": np.linspace(0.3, 2, len(arrays["param0"]), dtype=np.float32)}
    arrays |= {"param2": np.linspace(0.2, 1, len(arrays["param2"]), dtype=np.float32)}
    found = session.run(program, arrays, presets=preset)
    np.testing.assert_array_equal(found["out0"], run_nodes(program, arrays)["out0"])


@pytest.mark.parametrize("preset", [True, False])
def test_tokens_are_kept_in_the_slots_that_the_passes_name(session: Session, preset: bool) -> None:
    """On the device, for the next step; a slot past the end keeps nothing, and passes that there aren't keep nothing either."""
    wire = Wire()
    draw = wire.add("gumbel_max", wire.add("logits"))
    epilogue = parse(wire.text(draw, *([] if preset else [wire.add("position")])), vocabulary=301, rows=1)
    program, (_, inputs) = epilogue.program(5, 7, Pool(3, kept=(0,))), random_arrays(epilogue, [], 4, 1, seed=6)
    logits = np.random.default_rng(3).normal(0, 3, (7, 301)).astype(np.float32)
    arrays = inputs | {"logits": logits, "kept0": np.asarray([2, 3, 0, PAST, 1], np.uint32)}
    tokens = np.asarray([70, 71, 72], np.uint32)
    _, kept = session.run_and_keep(program, arrays | {"tokens": tokens})
    expected = tokens.copy()
    run_nodes(program, arrays | {"tokens": expected})
    assert kept.tolist() == expected.tolist()
    assert expected[1] == 71


@pytest.mark.parametrize("preset", [True, False])
def test_parameters_are_taken_from_the_slots_that_the_passes_name(session: Session, preset: bool) -> None:
    """A slot past the end leaves what was given; entries of floats go through the words bit by bit."""
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.parameter("f32", []))
    above = wire.add("ge", x, wire.add("kth_largest", x, wire.parameter("u32", []), keepdims=True))
    drawn = wire.add("gumbel_max", wire.add("select", above, x, wire.add("constant", value="-inf")))
    sums = [] if preset else [wire.add("add", wire.parameter("f32", [3]), wire.parameter("f32", []))]
    epilogue = parse(wire.text(drawn, *sums), vocabulary=301, rows=1)
    given = [("f32", (), 3), ("u32", (), 40), *([] if preset else [("f32", (3,), 9), ("f32", (), 9)])]
    pool = Pool(9, kept=() if preset else (1,), taken=(0,) if preset else (0, 2))
    program, (_, inputs) = epilogue.program(5, 6, pool), random_arrays(epilogue, given, 4, 1, seed=6)
    arrays = {
        name.replace("param", "given") if name in ("param0", "param2") else name: array
        for name, array in inputs.items()
    }
    if preset:
        arrays |= {"param1": inputs["param1"]}
    else:
        arrays["slots2"] = np.asarray([[3, 4, 5], [PAST, PAST, 4], [8, 0, 1], [5, 4, 3], [1, 1, 1]], np.uint32)
        arrays["kept1"] = np.asarray([[6, 7, 8], [PAST, PAST, PAST], [0, 1, 2], [PAST, 3, 4], [5, 5, 5]], np.uint32)
    arrays |= {name: np.abs(arrays[name]) + np.float32(0.5) for name in ("given0",)}
    arrays["slots0"] = np.asarray([0, PAST, 1, 2, 0], np.uint32)
    arrays["tokens"] = np.linspace(0.5, 4.5, 9, dtype=np.float32).view(np.uint32)
    check(session, program, arrays)


def test_several_in_flight_see_their_own_inputs(session: Session) -> None:
    """Of different numbers of passes; and bools come back as bytes."""
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.parameter("f32", []))
    text = wire.text(
        wire.add("gt", x, wire.parameter("f32", [1])), wire.add("gumbel_max", x), [wire.add("top_k", x, k=3), 1]
    )
    epilogue = parse(text, vocabulary=301, rows=1)
    given = [("f32", (), 3), ("f32", (1,), 9)]
    runs = [random_arrays(epilogue, given, passes, 4 - passes, seed=passes) for passes in (1, 4, 2, 3)]
    program = epilogue.program(4, 6)
    logits = np.random.default_rng(2).normal(0, 3, (6, 301)).astype(np.float32)

    async def outputs(backend: Any) -> list[dict[str, Any]]:
        executable = await backend.compile(program, {"logits": await put(backend, logits)})
        tickets = [
            backend.run(executable, {v.name: inputs[v.name].tobytes() for v in program.by_role(Role.INPUT)})
            for _, inputs in runs
        ]
        return [dict(await backend.read(ticket)) for ticket in tickets]

    for (_, inputs), found in zip(runs, session.wait_for(outputs), strict=True):
        expected = run_nodes(program, inputs | {"logits": logits})
        for name, want in expected.items():
            got = np.frombuffer(found[name], want.dtype).reshape(-1, *want.shape[1:])[: len(want)]
            np.testing.assert_array_equal(got, want)
