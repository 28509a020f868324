"""The Metal backend's protocol: order, memory, errors, a pool that is never there twice, and a device that is lost."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_mlx")

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.device import facts
from pie_edge.backends.metal.memory import host
from pie_edge.backends.metal.ops import MODULES
from pie_edge.backends.metal.ops.products import product
from pie_edge.backends.metal.timeline import Graph
from pie_edge.backends.shared.selftest import MadeWeight
from pie_edge.errors import DeviceLost, OutOfMemory
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType
from pie_edge.program.ops import Role, Value
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.grouped import GroupedTensor
from pie_edge.weights.source import file_weight
from tests.backend import openers
from tests.backend.device import fetch, put
from tests.backend.openers import Opening
from tests.backend.protocol_on_backend import *  # noqa: F403
from tests.backend.protocol_on_backend import doubling, opened, run
from tests.backend.protocol_on_device import (  # noqa: F401
    Losing,
    test_a_first_step_that_takes_long_says_why_once,
    test_a_lost_device_fails_what_ran_and_serves_what_comes_next,
    test_keys_and_values_are_halves_unless_the_exact_mode_is_asked_for,
)

PAGES, HEADS, WIDTH, PAGE = 1024, 4, 64, 16
POOL = PAGES * HEADS * WIDTH * PAGE * 4
"""Bytes of the keys, and of the values."""


@pytest.fixture
def open_backend() -> Opening:
    return openers.metal


@pytest.fixture
def lose() -> Losing:
    @contextmanager
    def lost(backend: Any) -> Iterator[None]:
        def fail(*arrays: mx.array) -> None:
            raise RuntimeError("[METAL] Command buffer execution failed")

        backend._live.timeline.start = fail
        yield

    return lost


def append_and_attend(case: Trace) -> dict[str, Any]:
    """A layer's append and what reads it, of a pool that is much larger than anything else."""
    step = case.step(StepLayout(Bucket(1, 1, 1, 4)))
    cache = (
        case.state("k", DType.F32, (PAGES, HEADS, WIDTH // 4, PAGE, 4)),
        case.state("v", DType.F32, (PAGES, HEADS, PAGE, WIDTH)),
        case.state("key_positions", DType.U32, (PAGES, PAGE)),
    )
    q = case.state("q", DType.F32, (1, HEADS * WIDTH))
    ops.kv_append(case, q, q, step, cache, heads=HEADS)
    return {"y": ops.attention(case, q, step, cache, heads=HEADS, kv_heads=HEADS, scale=0.1)}


async def layer_on(backend: Any) -> Any:
    """That layer, compiled, with states of its own."""
    trace = Trace("layer")
    append_and_attend(trace)
    program = trace.build()
    states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
    return await backend.compile(program, states)


def step_at(position: int) -> bytes:
    pages = list(range(1, position // PAGE + 2))
    last = (1 << (position % PAGE + 1)) - 1
    inputs = StepInputs(
        token_src=[0],
        positions=[position],
        row_index=[position],
        write_slots=[PAGE + position],
        query_starts=[0, 1],
        page_starts=[0, len(pages)],
        pages=pages,
        page_bits=[(1 << PAGE) - 1] * (len(pages) - 1) + [last],
        fresh_bits=[0] * (len(pages) - 1) + [1 << position % PAGE],
        sample_rows=[0],
        draw_keys=[0, 0],
    )
    return StepLayout(Bucket(1, 1, 1, 4)).pack(inputs).tobytes()


def test_keys_and_values_are_written_where_they_lie_also_with_runs_in_flight(open_backend: Opening) -> None:
    """Donation: MLX makes a state's new array of the old one's memory. What is in use at most is the pool and little more."""

    async def test() -> None:
        async with opened(open_backend) as backend:
            executable = await layer_on(backend)
            await backend.read(backend.run(executable, {"step": step_at(0)}))
            mx.reset_peak_memory()
            before = mx.get_active_memory()
            tickets = [backend.run(executable, {"step": step_at(position)}) for position in range(1, 40)]
            for ticket in tickets:
                await backend.read(ticket)
            assert before >= 2 * POOL
            assert mx.get_peak_memory() - before < POOL // 4

    run(test)


def test_enqueuing_waits_for_no_run_and_reading_the_last_one_for_all(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            executable = await layer_on(backend)
            tickets = [backend.run(executable, {"step": step_at(position)}) for position in range(8)]
            assert not backend.poll(tickets[-1])
            await backend.read(tickets[0])
            await backend.read(tickets[-1])
            assert all(map(backend.poll, tickets))

    run(test)


def test_encodings_are_taken_as_stated(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            for bits in (4, 5, 6, 8):
                for group in (16, 32, 64, 128):
                    assert backend.limits.supports(Affine(bits, group, DType.BF16, None))
            assert not backend.limits.supports(Affine(4, 24, DType.F16, None))
            assert not backend.limits.supports(Affine(2, 32, DType.F16, None))

    run(test)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_an_mlx_snapshot_is_loaded_as_it_is(
    open_backend: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, group: int
) -> None:
    """Its words go to the device unread, and multiply as MLX itself has it."""
    values = mx.array(np.random.default_rng(bits + group).standard_normal((37, 256)), mx.bfloat16)
    codes, scales, biases = mx.quantize(values, group_size=group, bits=bits)
    pieces = {"l.weight": codes, "l.scales": scales, "l.biases": biases}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), pieces)
    config = {"model_type": "llama", "quantization": {"bits": bits, "group_size": group}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr(GroupedTensor, "planes", None)

    async def test() -> None:
        async with opened(open_backend) as backend:
            source = file_weight(open_checkpoint(tmp_path).tensors["l.weight"], backend.limits.supports)
            assert source.target == Affine(bits, group, DType.BF16, None)
            value = Value("w", Role.WEIGHT, DType.F32, (37, 256), source.target)
            loaded = await backend.load(value, source)
            assert np.array_equal(host(loaded.weight.values), host(codes))
            wide = mx.dequantize(
                codes, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits
            )
            x = mx.array(np.eye(3, 256, dtype=np.float32))
            np.testing.assert_allclose(host(product(x, loaded.weight)), host(x @ wide.T), rtol=1e-6, atol=1e-6)

    run(test)


def test_what_is_freed_after_closing_is_no_error_and_what_fails_beside_runs_is_told_to_the_next(
    open_backend: Opening,
) -> None:
    async def test() -> None:
        backend = await asyncio.to_thread(open_backend)
        first, second = [await put(backend, np.ones(8, np.float32)) for _ in range(2)]
        executable = await backend.compile(doubling(), {"x": second})
        first.region.buffer.drop()
        backend.write(first, bytes(32))
        with pytest.raises(DeviceLost, match="lost in the middle of a run: AssertionError"):
            await backend.read(backend.run(executable, {}))
        assert list(await backend.read(backend.run(executable, {})))
        await backend.close()
        backend.free(second)

    run(test)


def test_what_was_freed_is_there_for_the_next_at_once(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend, memory=64 << 20) as backend:
            for _ in range(5):
                backend.free(await backend.allocate(40 << 20, Role.STATE))

    run(test)


def test_a_step_that_cannot_be_built_is_told_as_it_is_and_ends_nothing_else(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written before it is there."""

    def broken(*arguments: Any) -> Any:
        raise ValueError("played: shapes don't fit")

    async def test() -> None:
        async with opened(open_backend) as backend:
            trace = Trace("layer")
            y = append_and_attend(trace)["y"]
            built = trace.build()
            program = replace(built, values={**built.values, y.name: replace(y, role=Role.OUTPUT)})
            states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
            backend.write(states["q"], np.ones(HEADS * WIDTH, np.float32))
            name = "kernel" if facts().gpu else "ops"
            with monkeypatch.context() as played:
                played.setattr(MODULES["attention"], name, broken)
                failing = await backend.compile(program, states)
            working = await backend.compile(program, states)
            first = (await backend.read(backend.run(working, {"step": step_at(0)})))[y.name].tolist()
            tickets = [backend.run(executable, {"step": step_at(1)}) for executable in (failing, working)]
            with pytest.raises(ValueError, match="played: shapes"):
                await backend.read(tickets[0])
            assert (await backend.read(tickets[1]))[y.name].tolist() == pytest.approx(first)

    run(test)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (
            "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPU…ErrorOutOfMemory)",
            "more memory",
        ),
        (
            "[metal::malloc] Attempting to allocate 103809024 bytes which is greater than the maximum allowed buffer size.",
            "99.0 MiB more",
        ),
        ("[malloc] Unable to allocate 103809024 bytes.", "99.0 MiB more"),
        ("[metal::malloc] Resource limit (499000) exceeded.", "more memory"),
    ],
)
def test_memory_that_runs_out_in_a_step_is_told_with_figures_and_the_device_serves_what_comes_next(
    open_backend: Opening, said: str, asked: str
) -> None:
    """In MLX's own words, which are played: its CPU device ends the process."""

    async def test() -> None:
        async with opened(open_backend) as backend:
            state = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": state})
            first = backend._live

            def fail(*arrays: mx.array) -> None:
                raise RuntimeError(said)

            backend._live.timeline.start = fail
            with pytest.raises(OutOfMemory) as told:
                await backend.read(backend.run(executable, {}))
            assert re.match(
                rf"a step asked for {asked} than the Metal device has: [\d.]+ MiB are in use, ", str(told.value)
            )
            assert f"({said})" in str(told.value)
            assert "Lower `kv_memory`" in str(told.value)
            assert list(await backend.read(backend.run(executable, {})))
            # What was written before is gone with it.
            assert backend._live is not first
            assert not (await fetch(backend, state, np.ones(8, np.float32))).any()

    run(test)


def test_a_lost_device_is_given_back_before_the_same_is_loaded_again(open_backend: Opening, lose: Losing) -> None:
    """Also while somebody holds the error: memory that had run out would run out again."""
    rows, columns = 4096, 1024

    async def test() -> None:
        async with opened(open_backend) as backend:
            trace = Trace("layer")
            append_and_attend(trace)
            weight = trace.weight("w", (rows, columns), Dense(DType.F32))
            ops.linear(trace, trace.state("x", DType.F32, (1, columns)), weight)
            program = trace.build()
            states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
            loaded = await backend.load(program.values["w"], MadeWeight((rows, columns), Dense(DType.F32), 1))
            executable = await backend.compile(program, {**states, "w": loaded})
            await backend.read(backend.run(executable, {"step": step_at(0)}))
            mx.reset_peak_memory()
            before = mx.get_active_memory()
            assert before >= 2 * POOL + 4 * rows * columns
            with lose(backend), pytest.raises(DeviceLost) as held:
                await backend.read(backend.run(executable, {"step": step_at(1)}))
            assert mx.get_peak_memory() - before < POOL // 4
            assert mx.get_active_memory() - before < POOL // 4
            await backend.read(backend.run(executable, {"step": step_at(0)}))
            assert "lost" in str(held.value)

    run(test)


@pytest.mark.parametrize("where", ["as it is handed over", "as it ends"])
def test_a_step_that_mlx_refuses_once_it_has_begun_opens_the_device_again(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Also by what it takes for a caller's mistake: states depend by then on what won't be computed."""

    def refuse(*arguments: Any) -> None:
        raise ValueError("played: thread group size (2048) is greater than the maximum")

    async def test() -> None:
        async with opened(open_backend) as backend:
            executable = await layer_on(backend)
            first = backend._live
            with monkeypatch.context() as played:
                if where == "as it is handed over":
                    backend._live.timeline.start = refuse
                else:
                    played.setattr(Graph, "finish", refuse)
                with pytest.raises(DeviceLost, match="lost in the middle of a run: ValueError: played: thread group"):
                    await backend.read(backend.run(executable, {"step": step_at(0)}))
            await backend.read(backend.run(executable, {"step": step_at(0)}))
            assert backend._live is not first

    run(test)


def test_what_is_no_want_of_memory_is_a_lost_device(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            state = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": state})

            def fail(*arrays: mx.array) -> None:
                raise RuntimeError("[METAL] Command buffer execution failed: Caused GPU Timeout Error (00000002)")

            backend._live.timeline.start = fail
            with pytest.raises(DeviceLost, match="lost in the middle of a run: .* Timeout"):
                await backend.read(backend.run(executable, {}))
            assert list(await backend.read(backend.run(executable, {})))

    run(test)
