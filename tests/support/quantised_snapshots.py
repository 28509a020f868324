"""Matrices quantised as MLX, GPTQ and AWQ store them, from the formats' definitions, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight codes lies at each place of a word, from the lowest bits up."""


@dataclass(frozen=True)
class Variant:
    method: str
    bits: int
    group: int
    scale: str = "F16"
    symmetric: bool = False
    version: str = "gptq"

    @property
    def config(self) -> dict[str, Any]:
        if self.method == "MLX":
            return {"quantization": {"bits": self.bits, "group_size": self.group}}
        own = (
            {"checkpoint_format": self.version, "sym": self.symmetric} if self.method == "GPTQ" else {"version": "gemm"}
        )
        shared = {"quant_method": self.method.lower(), "bits": self.bits, "group_size": self.group}
        return {"quantization_config": shared | own}


VARIANTS = (
    *(
        Variant("MLX", bits, group, scale)
        for bits in (4, 8)
        for group, scale in ((32, "F16"), (64, "BF16"), (128, "F32"))
    ),
    *(
        Variant("GPTQ", bits, 32, symmetric=sym, version=v)
        for bits in (4, 8)
        for sym in (0, 1)
        for v in ("gptq", "gptq_v2")
    ),
    Variant("GPTQ", 4, -1, symmetric=True),
    Variant("AWQ", 4, 32),
    Variant("AWQ", 4, 128),
)


def pack(codes: Array, bits: int) -> Array:
    """[rows, codes] → [rows, words], the first code at the lowest bits."""
    by_word = codes.astype(np.uint32).reshape(len(codes), -1, 32 // bits)
    return np.bitwise_or.reduce(by_word << np.arange(0, 32, bits, dtype=np.uint32), axis=-1)


def bf16(values: Array) -> Array:
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def quantised(variant: Variant, rows: int, columns: int, seed: int) -> tuple[dict[str, Array], Array]:
    """The pieces by the ends of their names (bf16 as float32 that fits it), and the matrix in float32."""
    rng, bits = np.random.default_rng(seed), variant.bits
    group = columns if variant.group == -1 else variant.group
    codes = rng.integers(0, 1 << bits, (rows, columns))
    scales = (rng.uniform(0.5, 1.5, (rows, columns // group)) / (4 << bits)).astype(np.float16)
    by_group = codes.reshape(rows, -1, group).astype(np.float32)
    if variant.method == "MLX":
        kept = {"F16": lambda v: v.astype(np.float16), "F32": lambda v: v.astype(np.float32), "BF16": bf16}[
            variant.scale
        ]
        held = kept(scales)
        minima = kept(-held.astype(np.float32) * (1 << bits - 1) * rng.uniform(0.9, 1.1, scales.shape))
        dense = held.astype(np.float32)[:, :, None] * by_group + minima.astype(np.float32)[:, :, None]
        return {"weight": pack(codes, bits), "scales": held, "biases": minima}, dense.reshape(rows, columns)
    middle = 1 << bits - 1
    zeros = np.full(scales.shape, middle) if variant.symmetric else rng.integers(1, 1 << bits, scales.shape)
    dense = scales.astype(np.float32)[:, :, None] * (by_group - zeros[:, :, None].astype(np.float32))
    if variant.method == "AWQ":
        words = [pack(v.reshape(len(v), -1, 8)[:, :, AWQ_ORDER].reshape(len(v), -1), 4) for v in (codes.T, zeros.T)]
        pieces = {"qweight": words[0], "qzeros": words[1]}
    else:
        stored = zeros - 1 if variant.version == "gptq" else zeros
        pieces = {"qweight": pack(codes, bits).T, "qzeros": pack(stored.T, bits), "g_idx": np.arange(columns) // group}
    signed = {name: np.ascontiguousarray(piece).astype(np.uint32).view(np.int32) for name, piece in pieces.items()}
    return signed | {"scales": np.ascontiguousarray(scales.T)}, dense.reshape(rows, columns).astype(np.float32)
