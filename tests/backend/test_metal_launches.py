"""What Metal's kernels are launched with: arrays that Metal takes, and no more threadgroup memory than it has. Nothing computes
them here: a launcher that notes what it is asked for gives zeros."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_mlx")

import mlx.core as mx

from pie_edge.backends.metal import launch
from pie_edge.backends.metal.backend import MetalBackend
from pie_edge.backends.metal.device import Mode
from pie_edge.backends.metal.epilogues.on_device import DeviceEpilogue
from pie_edge.backends.metal.epilogues.on_host import HostedEpilogue
from pie_edge.backends.metal.launch import FOLDER, LEAST, Launch
from pie_edge.backends.metal.ops import attention
from pie_edge.backends.metal.ops.attention import most_queries, shared_bytes
from pie_edge.errors import Unsupported
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.ops import Role
from pie_edge.sampling import parse
from tests.backend import append_cases, device_cases, openers
from tests.backend.device import put, run_case
from tests.support.epilogues import Wire, random_arrays

THREADS = 1024
"""That a threadgroup may have."""
SHARED = 32 << 10
"""Bytes that a threadgroup may have on every Apple GPU."""


class Noting:
    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def __call__(self, asked: Launch) -> Sequence[mx.array]:
        self.launches.append(asked)
        return [mx.zeros(shape, dtype) for shape, dtype in asked.outputs]

    def opened(self) -> MetalBackend:
        backend = openers.metal(mode=Mode.KERNELS, launcher=self, exact=True)
        assert isinstance(backend, MetalBackend)
        return backend


def launched(*names: str) -> list[Launch]:
    noting = Noting()
    backend = noting.opened()
    for name in names:
        asyncio.run(run_case(backend, device_cases.build(name)))
    asyncio.run(backend.close())
    return noting.launches


@pytest.mark.parametrize(
    "name", ["gated_delta wide", "gated_delta wide, a fold alone", *append_cases.ODD, *device_cases.AWKWARD]
)
def test_kernels_are_given_arrays_of_one_address_space_and_none_that_is_empty(name: str) -> None:
    for asked in launched(name):
        assert all(array.size >= LEAST for array in asked.inputs)
        assert all(np.prod(shape) > 0 for shape, _ in asked.outputs)
        assert len(asked.inputs) == len(asked.kernel.inputs)
        assert asked.kernel.fits
        assert np.prod(asked.threads) <= THREADS


def test_a_step_with_nothing_but_tokens_to_run_again_is_launched_and_gives_no_rows() -> None:
    (asked,) = launched("gated_delta wide, a fold alone")
    assert asked.kernel.name == "gated_delta"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.metal")), ids=lambda file: file.stem)
def test_no_expression_chooses_between_two_arrays_which_may_lie_apart(file: Any) -> None:
    chosen = re.compile(r"\?\s*\w+\[[^?:;\[\]]*\]\s*:\s*(\w+\s*\?\s*)?\w+\[")
    assert chosen.search("x = past ? tail[at + 1] : rows[at];")
    assert not chosen.search(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("width", [1, 64, 80, 128, 256, 512, 1024, 2048, 3583])
def test_attention_asks_for_no_more_threadgroup_memory_than_there_is(width: int) -> None:
    queries = most_queries(width)
    assert shared_bytes(queries, attention.simdgroups(queries, width), width) <= SHARED
    assert queries == 8 or shared_bytes(2 * queries, 1, width) > SHARED - 4096


def test_heads_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="kernel attention takes heads of up to 3583 values, not of 3584"):
        most_queries(3584)


@pytest.mark.parametrize("outputs", [4, 16])
def test_an_epilogue_of_more_values_than_a_kernel_may_have_runs_on_the_host(
    monkeypatch: pytest.MonkeyPatch, outputs: int
) -> None:
    most = 8
    monkeypatch.setattr(launch, "MOST_ARRAYS", most)
    wire = Wire()
    x = wire.add("logits")
    epilogue = parse(wire.text(*(wire.add("mul", x, x) for _ in range(outputs))), vocabulary=16, rows=1)
    program, arrays = random_arrays(epilogue, [], 1, 1, seed=3)
    noting = Noting()

    async def test() -> dict[str, Any]:
        backend = noting.opened()
        states = {v.name: await put(backend, arrays[v.name]) for v in program.by_role(Role.STATE)}
        executable = await backend.compile(program, states)
        assert isinstance(executable.recorded, HostedEpilogue if outputs > most else DeviceEpilogue)
        given = {v.name: arrays[v.name].tobytes() for v in program.by_role(Role.INPUT)}
        found = dict(await backend.read(backend.run(executable, given)))
        await backend.close()
        return found

    found = asyncio.run(test())
    assert bool(noting.launches) == (outputs <= most)
    for asked in noting.launches:
        assert asked.kernel.fits
        assert all(array.size >= LEAST for array in asked.inputs)
    if outputs > most:
        for name, want in run_nodes(program, arrays).items():
            np.testing.assert_allclose(np.frombuffer(found[name], np.float32)[: want.size], want.reshape(-1))


def test_an_epilogue_is_compiled_once_for_all_batch_sizes_and_whoever_sends_it() -> None:
    """MLX compiles by name and text."""
    noting = Noting()

    async def test() -> None:
        backend = noting.opened()
        for passes in (1, 2, 4, 8):
            wire = Wire()
            x = wire.add("logits")
            parsed = parse(
                wire.text(wire.add("reduce_argmax", x), wire.add("reduce_sum", wire.add("neg", x))),
                vocabulary=301,
                rows=1,
            )
            program, arrays = random_arrays(parsed, [], passes, 0, seed=3)
            states = {v.name: await put(backend, arrays[v.name]) for v in program.by_role(Role.STATE)}
            executable = await backend.compile(program, states)
            given = {v.name: arrays[v.name].tobytes() for v in program.by_role(Role.INPUT)}
            await backend.read(backend.run(executable, given))
        await backend.close()

    asyncio.run(test())
    assert len(noting.launches) >= 4
    assert len({asked.kernel for asked in noting.launches}) == len(noting.launches) // 4
    by_name = {asked.kernel.name: asked.kernel for asked in noting.launches}
    assert set(by_name.values()) == {asked.kernel for asked in noting.launches}
