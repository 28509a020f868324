"""Four-bit floats of safetensors, in groups of 32 with a power of two for each (OCP Microscaling Formats, MXFP4).

    X_blocks u8 [matrices, rows, columns/32, 16], X_scales u8 [matrices, rows, columns/32]  →  X.weight [matrices, rows, columns]

A byte of the blocks has the codes of two neighbouring columns, the low four bits first; a GGUF's has those of columns 16 apart
(``recipes.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pie_edge.errors import BadCheckpoint
from pie_edge.program.encodings import Encoding
from pie_edge.weights.recipes import RECIPES
from pie_edge.weights.repack import HALVED_E8M0
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import Planes

_BLOCKS, _SCALES = "_blocks", "_scales"
_GROUP = 32


@dataclass(frozen=True, slots=True)
class Mxfp4Tensor:
    """Blocks and scales; to their readers much like one ``Tensor``."""

    name: str
    blocks: Tensor
    scales: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        *matrices, groups, _ = self.blocks.shape
        return (*matrices, groups * _GROUP)

    @property
    def native(self) -> Encoding:
        return RECIPES[self.encoding].encoding

    @property
    def encoding(self) -> str:
        return "MXFP4"

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes + self.scales.nbytes

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.blocks, self.scales

    def planes(self, first: int, count: int) -> Planes:
        groups = self.scales.shape[-1]
        held = np.frombuffer(self.blocks.span.view(), np.uint8).reshape(-1, groups * _GROUP // 2)[first : first + count]
        codes = np.stack((held & np.uint8(15), held >> np.uint8(4)), axis=-1).reshape(len(held), -1)
        scales = np.frombuffer(self.scales.span.view(), np.uint8).reshape(-1, groups)[first : first + count]
        return {"codes": codes, "scales": HALVED_E8M0[scales]}


def mxfp4(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors with blocks and scales as one. Raises BadCheckpoint for some that don't fit each other."""
    found = dict(tensors)
    for name in [name for name in tensors if name.endswith(_BLOCKS)]:
        stem, blocks = name.removesuffix(_BLOCKS), found.pop(name)
        scales = found.pop(stem + _SCALES, None)
        if scales is None or len(blocks.shape) != 4 or blocks.shape != (*scales.shape, _GROUP // 2):
            what = "are missing" if scales is None else f"are {list(scales.shape)} for blocks of {list(blocks.shape)}"
            raise BadCheckpoint(f"{blocks.span.source.path}: the scales of {stem} {what}; fetch the file again")
        if {blocks.encoding, scales.encoding} != {"U8"}:
            raise BadCheckpoint(f"{blocks.span.source.path}: {stem} is {blocks.encoding}; MXFP4 comes in bytes")
        found[f"{stem}.weight"] = Mxfp4Tensor(f"{stem}.weight", blocks, scales)
    return found
