"""Matrices of experts as one tensor: what files keep expert by expert, one expert's below another's as backends take them.

Hugging Face   X.experts.N.Y [rows, columns]   →  X.experts.Y [experts, rows, columns]
early GGUFs    blk.L.ffn_gate.N.weight         →  blk.L.ffn_gate_exps.weight
MLX            X.switch_mlp.Y [experts, rows, columns], only the name differs
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pie_edge.errors import BadCheckpoint
from pie_edge.program.encodings import Encoding
from pie_edge.weights.grouped import AnyTensor as Piece
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import repack
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import Planes

_EXPERT = re.compile(r"(?P<stem>.+\.experts)\.(?P<number>\d{1,5})\.(?P<rest>.+)")
_EARLY = re.compile(r"(?P<stem>blk\.\d+\.ffn_(?:gate|up|down))\.(?P<number>\d{1,5})\.(?P<rest>weight)")

_MLX = {
    ".block_sparse_moe.switch_mlp.gate_proj.": ".block_sparse_moe.experts.w1.",
    ".block_sparse_moe.switch_mlp.down_proj.": ".block_sparse_moe.experts.w2.",
    ".block_sparse_moe.switch_mlp.up_proj.": ".block_sparse_moe.experts.w3.",
    ".switch_mlp.": ".experts.",
}


@dataclass(frozen=True, slots=True)
class StackedTensor:
    """Matrices of one shape, one for each expert."""

    name: str
    pieces: tuple[Piece, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.pieces), *self.pieces[0].shape)

    @property
    def native(self) -> Encoding:
        first = self.pieces[0]
        return native_encoding(first.encoding) if isinstance(first, Tensor) else first.native

    @property
    def encoding(self) -> str:
        return self.pieces[0].encoding

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return tuple(part for piece in self.pieces for part in piece.parts)

    def planes(self, first: int, count: int) -> Planes:
        """``count`` rows from ``first``, of all matrices one below another."""
        rows = self.pieces[0].shape[0]
        return joined(
            _planes(self.pieces[matrix], start, some) for matrix, start, some in by_matrix(first, count, rows)
        )


def _planes(piece: Piece, first: int, count: int) -> Planes:
    return repack(piece, rows=slice(first, first + count)) if isinstance(piece, Tensor) else piece.planes(first, count)


def by_matrix(first: int, count: int, rows: int) -> Iterator[tuple[int, int, int]]:
    """Of ``count`` rows from ``first`` of matrices of ``rows`` rows each: the matrix, its first row, and how many of it."""
    while count > 0:
        matrix, start = divmod(first, rows)
        some = min(count, rows - start)
        yield matrix, start, some
        first, count = first + some, count - some


def joined(pieces: Iterator[Planes]) -> Planes:
    """Planes below planes."""
    held = list(pieces)
    if len(held) == 1:
        return held[0]
    return {name: np.concatenate([piece[name] for piece in held]) for name in held[0]}


AnyTensor = Piece | StackedTensor


def stack(tensors: Mapping[str, Piece]) -> dict[str, AnyTensor]:
    """The tensors with each expert's matrices as one. Raises BadCheckpoint for experts that are missing or differ."""
    found: dict[str, AnyTensor] = {}
    experts: dict[str, dict[int, Piece]] = {}
    for name, tensor in tensors.items():
        if match := _EXPERT.fullmatch(name):
            experts.setdefault(f"{match['stem']}.{match['rest']}", {})[int(match["number"])] = tensor
        elif match := _EARLY.fullmatch(name):
            experts.setdefault(f"{match['stem']}_exps.{match['rest']}", {})[int(match["number"])] = tensor
        else:
            found[_usual(name)] = tensor
    return found | {name: _stacked(name, numbered) for name, numbered in experts.items()}


def _usual(name: str) -> str:
    """Hugging Face's name for what MLX calls otherwise."""
    own = next((part for part in _MLX if part in name), "")
    return name.replace(own, _MLX[own]) if own else name


def _stacked(name: str, numbered: Mapping[int, Piece]) -> StackedTensor:
    pieces = tuple(numbered[number] for number in sorted(numbered))
    first = pieces[0]
    path = first.parts[0].span.source.path
    if len(numbered) != max(numbered) + 1:
        missing = next(number for number in range(len(numbered)) if number not in numbered)
        raise BadCheckpoint(f"{path}: {name} is there for expert {max(numbered)} and not for {missing}; fetch it again")
    for number, piece in enumerate(pieces):
        if (piece.shape, piece.encoding) != (first.shape, first.encoding):
            raise BadCheckpoint(
                f"{path}: {name} of expert {number} is {piece.encoding} {list(piece.shape)}, of expert 0 {first.encoding} "
                f"{list(first.shape)}; they must be alike. Fetch the file again"
            )
    return StackedTensor(name, pieces)
