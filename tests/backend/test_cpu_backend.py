"""The cpu backend's promises beyond its kernels' results: order, errors, memory, batches, loading."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.backends.cpu import selftest
from pie_edge.backends.cpu.backend import CpuBackend, open_cpu
from pie_edge.backends.cpu.executable import ModelExecutable
from pie_edge.backends.cpu.probe import probe
from pie_edge.backends.cpu.weights import supports
from pie_edge.errors import BackendUnavailable, DeviceLost, Unsupported, UsageError
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.trace import copy_program
from pie_edge.weights.formats import BLOCKS
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import unpack
from pie_edge.weights.widen import choose, widen
from tests.backend import cases, openers
from tests.backend.device import fetch, put, run_case
from tests.backend.openers import Opening
from tests.backend.protocol_on_backend import *  # noqa: F403
from tests.backend.protocol_on_backend import doubling, run


@pytest.fixture
def open_backend() -> Opening:
    return openers.cpu


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[CpuBackend]:
    backend = await open_cpu(**settings)
    try:
        yield backend
    finally:
        await backend.close()


def test_an_unknown_node_is_refused_by_name() -> None:
    async def test() -> None:
        async with opened() as backend:
            values = {"x": Value("x", Role.STATE, DType.F32, (1, 8)), "y": Value("y", Role.OUTPUT, DType.F32, (1, 8))}
            buffer = await backend.allocate(32, Role.STATE)
            with pytest.raises(Unsupported, match=r"node\.convolve"):
                await backend.compile(Program("odd", values, (Op("node.convolve", ("x",), ("y",)),)), {"x": buffer})

    run(test)


@pytest.mark.parametrize(
    ("encoding", "taken", "taken_exactly"),
    [
        (Dense(DType.BF16), True, True),
        (Affine(4, 32, DType.F16, None), True, False),
        (Affine(8, 128, DType.F32, 128), True, False),
        (Affine(5, 32, DType.F16, 16), False, False),
        (Affine(4, 24, DType.F16, None), False, False),
        (Lookup(32, DType.F16, tuple(float(i) for i in range(16))), False, False),
    ],
)
def test_encodings_are_taken_as_stated(encoding: Encoding, taken: bool, taken_exactly: bool) -> None:
    async def test() -> None:
        async with opened() as backend, opened(exact=True) as exact:
            assert backend.limits.supports(encoding) is taken
            assert exact.limits.supports(encoding) is taken_exactly

    run(test)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("culprit", ["leader", "helper"])
def test_a_trap_in_a_kernel_is_a_lost_device_and_no_hang(threads: int, culprit: str) -> None:
    async def test() -> None:
        backend = await open_cpu(threads=threads)
        case = cases.build("linear 576 61 rows")
        buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
        buffers["w"] = await backend.load(case.program.values["w"], case.sources["w"])
        executable = await backend.compile(case.program, buffers)
        assert isinstance(executable, ModelExecutable)
        if culprit == "leader":
            # The first instruction's operand goes where no memory is.
            backend._memory.view(executable.address + 128 + 20, 4)[:] = (0xFFFF0000).to_bytes(4, "little")
        else:
            # The weight begins inside memory and ends outside: whoever takes the last strips traps.
            end = backend._memory.shared.data_len() - 4096
            backend._memory.view(executable.address + 256 + 20, 4)[:] = end.to_bytes(4, "little")
        ticket = backend.run(executable, {"step": case.block})
        after = backend.run(executable, {"step": case.block})
        for one in (ticket, after):
            with pytest.raises(DeviceLost, match="trapped"):
                await backend.read(one)
        await backend.close()

    run(test)


def test_no_thread_outlives_a_backend_that_is_closed() -> None:
    async def test() -> None:
        before = set(threading.enumerate())
        backend = await open_cpu(threads=3)
        buffer = await backend.allocate(32, Role.STATE)
        backend.run(await backend.compile(doubling(), {"x": buffer}), {})
        await backend.close()
        left = set(threading.enumerate()) - before
        assert not [thread.name for thread in left if thread.name.startswith("pie-edge-cpu")]

    run(test)


@pytest.mark.parametrize(
    "name", ["linear affine4g32-f16-min 7 rows", "linear affine8g16-f32-z128 7 rows", "linear bf16 7 rows"]
)
def test_a_row_has_the_same_bits_alone_and_in_a_batch(name: str) -> None:
    async def test() -> None:
        async with opened() as backend:
            together = cases.build(name)
            alone = cases.build(name)
            step, bucket = cases.rows_step(1, 8)
            alone.block = cases.StepLayout(bucket).pack(step).tobytes()
            (output,) = (value.name for value in together.results)
            batch, single = (await run_case(backend, together))[output], (await run_case(backend, alone))[output]
            assert batch[0].tobytes() == single[0].tobytes()

    run(test)


@pytest.mark.parametrize("name", ["attention batch", "attention holes"])
def test_threads_do_not_change_the_bits(name: str) -> None:
    async def test() -> None:
        async with opened(threads=1) as one, opened(threads=3) as three:
            results = [await run_case(backend, cases.build(name)) for backend in (one, three)]
            case = cases.build(name)
            rows = case.rows
            for output in (value.name for value in case.results):
                assert results[0][output][:rows].tobytes() == results[1][output][:rows].tobytes()

    run(test)


def test_pages_are_copied_in_every_state() -> None:
    async def test() -> None:
        async with opened() as backend:
            rng = np.random.default_rng(1)
            arrays = {"a": rng.standard_normal((5, 12)).astype(np.float32), "b": rng.integers(0, 99, (5, 8), np.uint32)}
            states = [
                Value("a", Role.STATE, DType.F32, (5, 12)),
                Value("b", Role.STATE, DType.U32, (5, 8)),
            ]
            buffers = {name: await put(backend, array) for name, array in arrays.items()}
            executable = await backend.compile(copy_program(states, 4, slots=False), buffers)
            words = {"counts": [2], "sources": [1, 3, 0, 0], "targets": [4, 2, 0, 0]}
            inputs = {name: np.array(values, np.uint32).tobytes() for name, values in words.items()}
            await backend.read(backend.run(executable, inputs))
            for name, array in arrays.items():
                expected = array.copy()
                expected[[4, 2]] = array[[1, 3]]
                assert (await fetch(backend, buffers[name], array)).tolist() == expected.tolist()

    run(test)


@dataclass(frozen=True)
class FileSource:
    """Rows as a file has them; asking for planes is refused, so the kernels must take the blocks apart."""

    encoding: str
    shape: tuple[int, int]
    data: bytes

    def raw(self, first: int, count: int) -> memoryview:
        row = len(self.data) // self.shape[0]
        return memoryview(self.data)[first * row : (first + count) * row]

    def planes(self, first: int, count: int) -> Mapping[str, Any]:
        raise AssertionError("the blocks should have been read as they are")


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_of_a_file_are_repacked_as_the_numpy_recipes_do(name: str) -> None:
    rows, columns = 21, 512
    block = BLOCKS[name]
    data = np.random.default_rng(2).integers(0, 256, (rows * columns // block.weights, block.nbytes), np.uint8)
    for half in {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}.get(name, (0, 2)):
        data[:, half + 1] &= 0x3B  # scales and minima that are no infinities
    file = FileSource(name, (rows, columns), data.tobytes())
    native = native_encoding(name)
    target = choose(native, supports)
    planes = widen(unpack(name, file.data, rows, columns), native, target)

    async def test() -> None:
        async with opened() as backend:
            value = Value("w", Role.WEIGHT, DType.F32, (rows, columns), target)
            raw = await backend.load(value, file)
            made = await backend.load(value, cases.ArraySource((rows, columns), target, planes))
            bits = [bytes(backend._memory.view(w.region.offset, w.nbytes)) for w in (raw, made)]
            assert bits[0] == bits[1]

    run(test)


@pytest.mark.parametrize("kind", ["attention", "attention_mass", "rope", "glu"])
def test_a_kernel_that_computes_wrong_is_refused_by_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = json.loads(selftest.ANSWERS.read_text(encoding="utf-8"))
    output = next(op.outputs[0] for op in selftest.examination().program.ops if op.kind == kind)
    stored[output][0] += 0.1
    wrong = tmp_path / "answers.json"
    wrong.write_text(json.dumps(stored), encoding="utf-8")
    monkeypatch.setattr(selftest, "ANSWERS", wrong)
    with pytest.raises(
        BackendUnavailable,
        match=rf"computes cpu kernel '{kind}', .*, wrong: the worst error is 0\.1, and",
    ):
        run(open_cpu)


def test_the_self_test_covers_every_kind() -> None:
    async def test() -> None:
        async with opened() as backend:
            covered = {op.kind for op in selftest.examination().program.ops}
            assert covered == backend.limits.kinds - {"copy_pages", "copy_slots"}

    run(test)


def test_compiled_kernels_are_cached_and_a_broken_cache_does_no_harm(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(cache_dir=tmp_path):
            (cached,) = tmp_path.glob("cpu-*.cwasm")
        cached.write_bytes(b"not machine code")
        async with opened(cache_dir=tmp_path):
            assert cached.stat().st_size > 10_000

    run(test)


def test_negative_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 threads"):
        run(lambda: open_cpu(threads=-1))


def test_the_probe_names_this_machine() -> None:
    found = probe()
    assert found.devices
    assert not found.reason
