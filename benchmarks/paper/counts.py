"""What warps of the CUDA kernels touch, counted on the emulator: sectors of global memory, and turns in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.harness import table
from pie_edge.backends.cuda import nvrtc
from pie_edge.sampling import parse, presets
from tests.backend.cuda_cases import GATED_TILE
from tests.backend.cuda_emulated import architecture, compiler, counted, opened
from tests.backend.device_cases import check
from tests.simt import build
from tests.support.epilogue_device import Session
from tests.support.epilogues import check_results, random_arrays

_HOPPER = 90
_HEAD = (
    "kernel",
    "of",
    "narrow accesses",
    "sectors a warp's",
    "wide accesses",
    "sectors a warp's",
    "turns in shared memory",
)


@dataclass(frozen=True)
class Run:
    """A kernel, and a case of the tests that launches it."""

    kernel: str
    of: str
    case: str


RUNS = (
    Run("linear", "4 bits, one row", "linear affine4g32-f16-min 1 rows"),
    Run("linear", "5 bits, one row", "linear affine5g32-f16-z16 1 rows"),
    Run("linear", "6 bits, one row", "linear affine6g64-f16-min 1 rows"),
    Run("linear", "8 bits, one row", "linear affine8g32-f16-z16 1 rows"),
    Run("linear", "bf16, one row", "linear bf16 1 rows"),
    Run("linear", "f16, one row", "linear f16 1 rows"),
    Run("linear_tile", "4 bits, 61 rows", "linear 576 61 rows"),
    Run("linear_tile", "a gated unit of 37 rows", GATED_TILE),
    Run("halve", "576 columns of 61 rows", "linear 576 61 rows"),
    Run("expert_linear", "two experts' rows", "expert_linear bf16, rows past the true ones"),
    Run("attention_decode", "a long decode", "halves attention long decode"),
    Run("attention_merge", "a long decode", "halves attention long decode"),
    Run("attention_prefill", "floats, 19 rows after 290", "attention prefill after past"),
    Run("attention_prefill", "5 rows, heads of 256", "halves attention width 256"),
    Run("attention_tile", "a batch with prompts", "halves attention batch"),
    Run("gated_delta", "75 rows, heads of 16", "gated_delta many rows"),
    Run("rms_norm", "576 values", "rms_norm 576x1 1 rows"),
    Run("add_rms_norm", "576 values", "add_rms_norm 576 1 rows"),
    Run("rope_append", "5 rows, 9 + 3 heads of 64", "halves append neox"),
)
_ON_HOPPER = (Run("linear_wgmma", "4 bits, 61 rows", "linear 576 61 rows"),)
_LOGITS = 4096
_TEMPERATURE, _TOP_K, _TOP_P = 0.8, 40, 0.95


def counts() -> str:
    """Runs the cases on a traced emulator."""
    with _traced() as session:
        rows = [_row(run.kernel, run.of, partial(check, session.backend, run.case)) for run in RUNS]
        rows.append(_row("sample", f"top-k and top-p of {_LOGITS:,} logits", partial(_draw, session)))
    with architecture(_HOPPER), _traced() as session:
        rows += [_row(run.kernel, run.of, partial(check, session.backend, run.case)) for run in _ON_HOPPER]
    return table(_HEAD, rows)


@contextmanager
def _traced() -> Iterator[Session]:
    session = Session(opened(compile_kernels=compiler(nvrtc.sources(), build.TRACED)))
    yield session
    session.close()


def _draw(session: Session) -> None:
    """A token by the preset's own kernel."""
    epilogue = parse(presets.sample(_TEMPERATURE, _TOP_K, _TOP_P).wire, vocabulary=_LOGITS, rows=1)
    program, arrays = random_arrays(epilogue, [("f32", (), 0), ("u32", (), 0), ("f32", (), 0)], 1, 0, seed=0)
    logits = np.random.default_rng(0).normal(0, 3, arrays["logits"].shape).astype(np.float32)
    given = {f"param{number}": value for number, value in enumerate((_TEMPERATURE, _TOP_K, _TOP_P))}
    arrays |= {"logits": logits, **{name: np.full_like(arrays[name], value) for name, value in given.items()}}
    check_results(session.run(program, arrays), program, arrays)


def _row(kernel: str, of: str, run: Callable[[], None]) -> list[str]:
    before = counted(kernel)
    run()
    narrow, wide, shared = (
        {key: now[key] - then[key] for key in now} for then, now in zip(before, counted(kernel), strict=True)
    )
    return [f"`{kernel}`", of, *_sectors(narrow), *_sectors(wide), _turns(shared)]


def _sectors(found: Mapping[str, int]) -> tuple[str, str]:
    """How many accesses of warps, and the sectors of each beside the fewest that its bytes can lie in."""
    count = found["instructions"]
    if not count:
        return "0", "–"
    return f"{count:,}", f"{found['sectors'] / count:.2f} of {found['ideal_sectors'] / count:.2f}"


def _turns(found: Mapping[str, int]) -> str:
    return f"{found['waves'] / found['ideal_waves']:.2f} × the fewest" if found["ideal_waves"] else "–"
