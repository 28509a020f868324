"""What the table of epilogue nodes is made of: tensor types, attributes, and a node's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pie_edge.program.encodings import DType
from pie_edge.program.node_shapes import Attributes, Shape


class Element(StrEnum):
    """What a tensor of an epilogue holds."""

    F32 = "f32"
    I32 = "i32"
    U32 = "u32"
    BOOL = "bool"

    @property
    def storage(self) -> DType:
        """A bool is kept as a byte, 0 or 1."""
        return DType.U8 if self is Element.BOOL else DType(self.value)


class TensorType(NamedTuple):
    """Element and shape of one pass's tensor."""

    dtype: Element
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


DOMAINS: Mapping[str, frozenset[Element]] = {
    "f32": frozenset({Element.F32}),
    "u32": frozenset({Element.U32}),
    "bool": frozenset({Element.BOOL}),
    "int": frozenset({Element.I32, Element.U32}),
    "signed": frozenset({Element.F32, Element.I32}),
    "number": frozenset({Element.F32, Element.I32, Element.U32}),
    "bits": frozenset({Element.I32, Element.U32, Element.BOOL}),
    "any": frozenset(Element),
}


class AttributeKind(StrEnum):
    """How an attribute's value is checked. An *extent* is a length, or ``"vocab"`` for the model's vocabulary."""

    INTEGER = "integer"
    EXTENT = "extent"
    SHAPE = "shape"
    AXIS = "axis"
    FLAG = "flag"
    NUMBER = "number"
    ELEMENT = "element"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute. An absent one has its ``default``; integers lie in ``low … high``."""

    name: str
    kind: AttributeKind
    default: int | str | bool | None = None
    required: bool = False
    low: int = 0
    high: int = 2**31 - 1
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeKind:
    """One row of the table. ``operands`` are ``(name, domain)``; a name ending in ``*`` stands for one or more of them.

    ``results`` are elements, ``"T"`` (the operands' own) or ``"dtype"`` (the attribute's); all have the same shape.
    ``cost`` is the work for each entry read or written, one for an addition. ``normalise`` makes attributes concrete.
    """

    name: str
    operands: tuple[tuple[str, str], ...]
    results: tuple[str, ...]
    shape: Callable[[Sequence[Shape], Attributes], Shape]
    meaning: str
    domain: str = "any"
    attributes: tuple[Attribute, ...] = ()
    cost: int = 1
    random: bool = False
    normalise: Callable[[Sequence[Shape], Attributes], Attributes] | None = None

    @property
    def variadic(self) -> bool:
        return bool(self.operands) and self.operands[0][0].endswith("*")
