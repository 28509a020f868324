"""A checkpoint's tensor as a backend pulls it: raw rows of the file, or planes in the encoding chosen for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pie_edge.errors import Unsupported
from pie_edge.program.encodings import Encoding
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import repack
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import choose


@dataclass(frozen=True, slots=True)
class FileWeight:
    """``target`` is what the Program says the weight is in; the file's own encoding fits it exactly."""

    tensor: Tensor
    target: Encoding

    @property
    def encoding(self) -> str:
        return self.tensor.encoding

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def raw(self, first: int, count: int) -> memoryview:
        row = self.tensor.nbytes // self.tensor.rows
        return self.tensor.span.part(first * row, count * row).view()

    def planes(self, first: int, count: int) -> dict[str, Any]:
        return repack(self.tensor, self.target, slice(first, first + count))


def file_weight(tensor: Tensor, supported: Callable[[Encoding], bool]) -> FileWeight:
    """The weight in the narrowest exact encoding that the device takes. Raises Unsupported, naming file and tensor."""
    try:
        return FileWeight(tensor, choose(native_encoding(tensor.encoding), supported))
    except Unsupported as error:
        raise Unsupported(f"{tensor.span.source.path}: tensor {tensor.name!r}: {error}") from None
