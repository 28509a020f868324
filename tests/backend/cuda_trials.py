"""What every kernel of the CUDA backend is tried with: cases of ops and of epilogues, each of well under a second. Of those
that come to the same kernels the shorter ones are first: they catch most mutants."""

from __future__ import annotations

import asyncio

from tests.backend import copy_cases, device_cases
from tests.backend.cuda_bench import AMPERE, HOPPER, Trial
from tests.backend.cuda_cases import GATED, GATED_TILE, GROUP_TILE
from tests.backend.cuda_epilogue_trials import EPILOGUES


def _op(name: str, generation: int = AMPERE) -> Trial:
    title = name if generation == AMPERE else f"{name} on sm_{generation}"
    return Trial(title, lambda backend: device_cases.check(backend, name), generation)


def _copies(name: str) -> Trial:
    return Trial(f"copy of {name}", lambda backend: asyncio.run(copy_cases.check(backend, name)))


_OPS = (
    "silu 13 7 rows",
    "clamped_glu 13",
    "activation gelu 13 7 rows",
    "add 13 7 rows",
    "mul by row 13 7 rows",
    "scale 13 7 rows",
    "softcap 13 7 rows",
    "store",
    "gather_rows",
    "combine_experts 13 of 3",
    "rms_norm 7x3 8 rows",
    "rms_norm 64x9 7 rows",
    "add_rms_norm 10 7 rows",
    "layer_norm 13 7 rows",
    "layer_norm 768 1 rows",
    "rope interleaved in part",
    "append neox in part",
    "embed affine4g32-f16-min",
    "embed bf16",
    "adapter_linear 33x67 8 rows",
    "short_conv of three",
    "short_conv bf16",
    "gated_delta odd",
    "gated_delta wider",
    "gated_delta many rows",
    "route 8 of 128 11 rows",
    "route 1 of 13 11 rows",
    "expert_linear, one row",
    "expert_linear bf16, rows past the true ones",
    "expert_linear, some of seven",
    "expert_linear, some of 65",
    "expert_linear, many columns",
    "linear affine4g32-f16-min 1 rows",
    "linear bf16 7 rows",
    "linear affine5g16-f32-min 7 rows",
    GATED,
    "three products of a few rows",
    "linear of 37 columns",
    "linear of 1,056 columns",
    "linear of 8,200 outputs",
    "linear of 65 rows",
    "attention one token",
    "attention whole pages",
    "halves attention whole pages",
    "observed attention whole pages",
    "attention width 96",
    "attention width 20",
    "attention window",
    "attention sinks",
    "attention masked",
    "attention prefill after past",
    "attention batch",
    "halves attention prefill after past",
    "halves attention masked, window",
    "halves attention batch",
    "observed attention page 8",
    "observed attention masked, window",
    "halves observed attention softcap",
    "linear 576 61 rows",
    "linear f16, 70 rows",
    "linear affine6g64-f32-min, 70 rows",
    "linear bf16, 70 rows",
    "linear affine6g16-f32-z32, 70 rows",
    GATED_TILE,
    GROUP_TILE,
)
TRIALS = (
    *map(_copies, ("several pages", "tokens, swapped")),
    *EPILOGUES,
    *map(_op, _OPS),
    *(
        _op(name, HOPPER)
        for name in ("linear of 65 rows", "linear affine6g64-f32-min, 70 rows", GATED_TILE, GROUP_TILE)
    ),
)
