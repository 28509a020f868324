"""Epilogues on the CUDA backend, written as CUDA C++ when they are first used, against the node reference."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import compiler
from pie_edge.backends.cuda.epilogue import Epilogue
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.nodes import NODES
from pie_edge.program.ops import Program, Role
from pie_edge.sampling import Pool, parse
from tests.backend.cuda_emulated import opened
from tests.backend.device import put
from tests.pure.test_sampling_nodes import RUNS, VOCABULARY, a_pass
from tests.support.epilogue_graphs import Case, cases
from tests.support.epilogues import Wire, arrays_of, random_arrays
from tests.support.node_oracle import Plain

SOME = RUNS[::8]
"""All nodes, and an eighth of their cases: each is a few kernels to compile."""


class Session:
    """A backend and a loop of its own, for tests that aren't coroutines."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._backend = opened()

    def run(self, program: Program, arrays: dict[str, Any]) -> dict[str, Any]:
        """The outputs of the true passes and, as ``tokens``, the engine's tokens."""
        return self._runner.run(self._run(program, arrays))

    async def _run(self, program: Program, arrays: dict[str, Any]) -> dict[str, Any]:
        backend = self._backend
        states = {v.name: await put(backend, np.ascontiguousarray(arrays[v.name])) for v in program.by_role(Role.STATE)}
        executable = await backend.compile(program, states)
        inputs = {v.name: np.ascontiguousarray(arrays[v.name]).tobytes() for v in program.by_role(Role.INPUT)}
        outputs = await backend.read(backend.run(executable, inputs))
        found: dict[str, Any] = {}
        for name, data in outputs.items():
            shape = program.values[name].shape
            found[name] = np.frombuffer(data, np.uint8).reshape(shape[0], -1)[: int(arrays["counts"][0])]
        if "tokens" in states:
            found["tokens"] = (await backend.read(backend.download([(states["tokens"], 0, states["tokens"].nbytes)])))[
                "0"
            ]
        for state in states.values():
            backend.free(state)
        return found

    def close(self) -> None:
        self._runner.run(self._backend.close())
        self._runner.close()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    opened = Session()
    yield opened
    opened.close()


def check(session: Session, program: Program, arrays: dict[str, Any]) -> None:
    found, expected = session.run(program, arrays), run_nodes(program, arrays)
    for name, want in expected.items():
        got = found[name].copy().view(want.dtype).reshape(want.shape)
        if want.dtype == np.float32:
            np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize(
    ("name", "operands", "attributes", "rows"), SOME, ids=[f"{i}-{r[0]}" for i, r in enumerate(SOME)]
)
def test_a_node_means_what_the_reference_says(
    session: Session, name: str, operands: Any, attributes: Any, rows: int
) -> None:
    wire = Wire()
    inputs = [wire.parameter(dtype, shape) for dtype, shape, _ in operands]
    node = wire.add(name, *inputs, **attributes)
    text = wire.text(*([node, result] for result in range(len(NODES[name].results))))
    forward = [Plain(shape, list(values)) for _, shape, values in operands]
    backward = [Plain(shape, list(values)[::-1]) for _, shape, values in operands]
    if name == "param":
        forward, backward = [Plain((2,), [1, -2])], [Plain((2,), [3, 4])]
    passes = [a_pass(given, rows, salt) for salt, given in enumerate((forward, backward, forward), 1)]
    check(session, *arrays_of(parse(text, vocabulary=VOCABULARY, rows=rows), passes, spare=2))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
def test_any_epilogue_means_what_the_reference_says(session: Session, case: Case, seed: int) -> None:
    epilogue = parse(case.text, vocabulary=case.vocabulary, rows=case.rows)
    parameters = [(given.dtype, given.shape, given.bound) for given in case.parameters]
    check(session, *random_arrays(epilogue, parameters, passes=2, spare=1, seed=seed))


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
def test_a_preset_draws_the_reference_tokens(
    session: Session, monkeypatch: pytest.MonkeyPatch, preset: bool, vocabulary: int
) -> None:
    monkeypatch.setattr(compiler, "Epilogue", lambda program, facts: Epilogue(program, facts, presets=preset))
    epilogue = sampling(vocabulary)
    program, arrays = random_arrays(epilogue, [("f32", (), 3), ("u32", (), 40), ("f32", (), 1)], 6, 1, seed=4)
    arrays |= {"param0": np.linspace(0.3, 2, len(arrays["param0"]), dtype=np.float32)}
    arrays |= {"param2": np.linspace(0.2, 1, len(arrays["param2"]), dtype=np.float32)}
    check(session, program, arrays)


def test_tokens_are_kept_in_the_slots_that_the_passes_name(session: Session) -> None:
    """On the device, for the next step; a slot past the end keeps nothing, and passes that there aren't keep nothing either."""
    wire = Wire()
    epilogue = parse(wire.text(wire.add("gumbel_max", wire.add("logits"))), vocabulary=301, rows=1)
    program, (_, inputs) = epilogue.program(5, 7, Pool(3, kept=(0,))), random_arrays(epilogue, [], 4, 1, seed=6)
    logits = np.random.default_rng(3).normal(0, 3, (7, 301)).astype(np.float32)
    arrays = inputs | {"logits": logits, "kept0": np.asarray([2, 3, 0, 4_000_000_000, 1], np.uint32)}
    arrays["tokens"] = np.asarray([70, 71, 72], np.uint32)
    found = session.run(program, arrays)
    expected = arrays["tokens"].copy()
    run_nodes(program, arrays | {"tokens": expected})
    assert np.frombuffer(found["tokens"], np.uint32).tolist() == expected.tolist()
    assert expected[1] == 71


def test_parameters_are_taken_from_the_slots_that_the_passes_name(session: Session) -> None:
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.parameter("f32", []))
    epilogue = parse(wire.text(wire.add("gumbel_max", x)), vocabulary=301, rows=1)
    program, (_, inputs) = (
        epilogue.program(5, 6, Pool(9, taken=(0,))),
        random_arrays(epilogue, [("f32", (), 3)], 4, 1, seed=6),
    )
    arrays = {name.replace("param", "given"): array for name, array in inputs.items()}
    arrays["given0"] = np.abs(arrays["given0"]) + np.float32(0.5)
    arrays["slots0"] = np.asarray([0, 4_000_000_000, 1, 2, 0], np.uint32)
    arrays["tokens"] = np.linspace(0.5, 4.5, 9, dtype=np.float32).view(np.uint32)
    check(session, program, arrays)
