"""Scalar expressions in a language like C: what its dialects share, and what each says for itself.

Integers are ``u32`` throughout, and operations say how they are meant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pie_edge.backends.shared.epilogue_reductions import comparison, keeps_loss, never
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Combine, Reduction
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, U32, Scalar

_INTEGER = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "eq": "==", "ne": "!="}
_UNSIGNED = {"div": "/", "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ORDERED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True, eq=False)
class Dialect:
    """Operations are forms, in which {0}, {1} … stand for the names of what they take."""

    float_type: str
    as_float: str
    """A word's bits as a float."""
    as_bits: str
    """And a float's as a word."""
    signed: str
    """A word as a signed number."""
    unsigned: str
    """And back."""
    truth: str
    """A truth as a word."""
    select: str
    """{1} if {0}, else {2}."""
    arithmetic: Mapping[str, str]
    """Of floats: ``add``, ``sub``, ``mul`` and ``div``, which round once and are never brought together with others."""
    functions: Mapping[str, str]
    """Names of ``floor``, ``ceil``, ``round`` (to even) and ``sqrt``."""
    conversions: Mapping[tuple[Element, Element], str]
    declared: str
    """A {name} for the {value} of a {type}."""
    loop: str
    """The head of one over ``index`` from {first} up to {extent}, {step} at a time."""
    leaves: Mapping[str, str]
    """What expressions start from: the slot, the pass, the row and the index, and a zero that no compiler sees through."""
    lane: str
    column: str
    columns: str
    """The names of an invocation's number in its workgroup, the workgroup's along x, and how many of those there are."""

    float_constant: Callable[[int], str]
    """The float with these bits."""
    is_plain: Callable[[str], bool] = lambda constant: True
    """Whether a constant may stand wherever it is used: it costs nothing."""

    @cached_property
    def types(self) -> Mapping[Element, str]:
        return {F32: self.float_type, I32: "u32", U32: "u32", BOOL: "bool"}

    @cached_property
    def forms(self) -> Mapping[tuple[str, Element], str]:
        """Of all operations, by the type of the first argument."""
        both, bits = (I32, U32), self.as_bits.format("{0}")
        first, second = self.signed.format("{0}"), self.signed.format("{1}")
        return {
            **{(op, F32): form for op, form in self.arithmetic.items()},
            **{(op, F32): f"({{0}} {sign} {{1}})" for op, sign in {**_ORDERED, "eq": "=="}.items()},
            ("ne", F32): "(!({0} == {1}))",
            ("neg", F32): self.as_float.format(f"{bits} ^ 0x80000000u"),
            ("abs", F32): self.as_float.format(f"{bits} & 0x7fffffffu"),
            **{(op, F32): f"{name}({{0}})" for op, name in self.functions.items()},
            **{(op, e): f"({{0}} {sign} {{1}})" for op, sign in _INTEGER.items() for e in both},
            **{("not", e): "(~{0})" for e in both},
            **{("neg", e): "(0u - {0})" for e in both},
            **{("shl", e): "({0} << ({1} & 31u))" for e in both},
            **{(op, U32): f"({{0}} {sign} {{1}})" for op, sign in _UNSIGNED.items()},
            ("shr", U32): "({0} >> ({1} & 31u))",
            ("shr", I32): self.unsigned.format(f"{first} >> ({{1}} & 31u)"),
            **{(op, I32): f"({first} {sign} {second})" for op, sign in _ORDERED.items()},
            ("abs", I32): self.select.format(f"{first} < 0", "0u - {0}", "{0}"),
            ("and", BOOL): "({0} && {1})",
            ("or", BOOL): "({0} || {1})",
            ("not", BOOL): "(!{0})",
            ("eq", BOOL): "({0} == {1})",
            ("ne", BOOL): "({0} != {1})",
        }

    def constant(self, element: Element, value: Any) -> str:
        if element is BOOL:
            return "true" if value else "false"
        if element is not F32:
            return f"{int(value) & 0xFFFFFFFF}u"
        return self.float_constant(struct.unpack("<I", struct.pack("<f", value))[0])

    def written(self, scalar: Scalar, arguments: list[str]) -> str:
        """An operation of arguments that have names."""
        op, element = scalar.op, scalar.element
        if op == "select":
            return self.select.format(*arguments)
        source = scalar.arguments[0].element
        if op == "convert":
            return self.conversions[source, element].format(*arguments)
        if op == "bits":
            same = self.types[source] == self.types[element]
            return arguments[0] if same else self.from_word(self.as_word(arguments[0], source), element)
        return self.forms[op, source].format(*arguments)

    def as_word(self, value: str, element: Element) -> str:
        if element is BOOL:
            return self.truth.format(value)
        return self.as_bits.format(value) if element is F32 else value

    def from_word(self, word: str, element: Element) -> str:
        return self.as_float.format(word) if element is F32 else word


@dataclass(frozen=True)
class Partial:
    """A reduction's variables by name: its value so far, its index, and for a sum of floats what it has rounded away."""

    reduction: Reduction
    dialect: Dialect

    @property
    def value(self) -> str:
        return f"r{self.reduction.number}"

    @property
    def index(self) -> str:
        return f"i{self.reduction.number}"

    @property
    def loss(self) -> str:
        return f"l{self.reduction.number}"

    @property
    def element(self) -> Element:
        return self.reduction.element

    @property
    def type(self) -> str:
        return self.dialect.types[self.element]

    @property
    def sums(self) -> bool:
        return self.reduction.combine is Combine.SUM

    @property
    def keeps_loss(self) -> bool:
        return keeps_loss(self.reduction)

    @property
    def is_of_index(self) -> bool:
        return self.reduction.combine.of_index

    @property
    def never(self) -> str:
        """What any element beats, or adds nothing."""
        return self.dialect.constant(self.element, never(self.reduction))

    def better(self, value: str, old: str) -> str:
        return self.dialect.forms[comparison(self.reduction), self.element].format(value, old)
