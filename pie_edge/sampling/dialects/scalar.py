"""Scalar expressions: what one invocation of a kernel computes, in operations that every shading language has.

Expressions are built with Python's operators, once each: a Builder hands out the same object for the same expression, so
equality is identity and a common subexpression is written once. Integer expressions fold, because indices are made of
them; float operations stay as they are and round after each, so every language computes the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pie_edge.program.node_types import Element

Number = int | float | bool
WORDS = 2**32
"""One more than the largest u32."""

F32, I32, U32, BOOL = Element.F32, Element.I32, Element.U32, Element.BOOL


class Level(IntEnum):
    """How often an expression's value changes."""

    CONSTANT = 0
    ROW = 1
    ELEMENT = 2


class Leaf(StrEnum):
    """What an expression starts from."""

    PASS = "pass"
    """Number of the pass, counted from the call's first."""
    SLOT = "slot"
    """Number of the pass within its round: where temporaries of the pass lie."""
    ROW = "row"
    """Number of the row within its pass."""
    INDEX = "index"
    """Number of the element within its row."""


class Memory(StrEnum):
    """The buffers that a kernel sees, each an array of u32 words."""

    LOGITS = "logits"
    HIDDEN = "hidden"
    """Hidden states."""
    INPUTS = "inputs"
    ARENA = "arena"
    """Temporaries."""
    OUTPUTS = "outputs"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scalar:
    """An expression. ``datum`` is a constant's value, a load's Memory, a start's value or a reduction's number.

    ``below`` bounds a u32; ``stage`` is the first loop of its kernel in which the value is known: 0, or one more than the
    last reduction that it needs.
    """

    builder: Builder
    op: str
    element: Element
    arguments: tuple[Scalar, ...]
    datum: Any
    level: Level
    stage: int
    below: int
    number: int
    """Expressions are numbered as they are made: arguments before what uses them."""

    def __repr__(self) -> str:
        """Its own operation alone: written out, shared expressions would repeat without end."""
        inner = [f"#{argument.number}" for argument in self.arguments]
        if self.datum is not None:
            inner.append(str(self.datum))
        return f"#{self.number} {self.op}({', '.join(inner)})"

    def __add__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("add", self, other)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("sub", self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return self.builder.constant(self.element, other) - self

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("mul", self, other)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return self.builder.constant(self.element, other) / self

    def __floordiv__(self, other: Scalar | Number) -> Scalar:
        """Of u32, by something that isn't zero."""
        return self.builder.binary("div", self, other)

    def __mod__(self, other: Scalar | Number) -> Scalar:
        """Of u32, by something that isn't zero."""
        return self.builder.binary("mod", self, other)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("and", self, other)

    def __or__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("or", self, other)

    def __xor__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("xor", self, other)

    def __lshift__(self, other: Scalar | Number) -> Scalar:
        return self.builder.binary("shl", self, other)

    def __rshift__(self, other: Scalar | Number) -> Scalar:
        """Arithmetic for i32, logical for u32."""
        return self.builder.binary("shr", self, other)

    def __invert__(self) -> Scalar:
        return self.builder.make("not", self.element, self)

    def __neg__(self) -> Scalar:
        return self.builder.make("neg", self.element, self)

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return self.builder.compare("lt", self, other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return self.builder.compare("le", self, other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return self.builder.compare("gt", self, other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return self.builder.compare("ge", self, other)

    def equals(self, other: Scalar | Number) -> Scalar:
        return self.builder.compare("eq", self, other)

    def differs(self, other: Scalar | Number) -> Scalar:
        """True where one is NaN."""
        return self.builder.compare("ne", self, other)

    def where(self, yes: Scalar | Number, no: Scalar | Number) -> Scalar:
        """``yes`` if this truth value holds; one of the two may be a number of the other's type."""
        if isinstance(yes, Scalar):
            return self.builder.select(self, yes, self.builder.like(yes, no))
        assert isinstance(no, Scalar)
        return self.builder.select(self, self.builder.constant(no.element, yes), no)

    def unary(self, op: str) -> Scalar:
        """abs, floor, ceil, round or sqrt."""
        return self.builder.make(op, self.element, self)

    def bits(self, element: Element) -> Scalar:
        """The same 32 bits as another type."""
        if element is self.element:
            return self
        return self.arguments[0].bits(element) if self.op == "bits" else self.builder.make("bits", element, self)

    def convert(self, element: Element) -> Scalar:
        """The number as another type, which must be able to hold it (floats lose their fraction)."""
        return self if element is self.element else self.builder.make("convert", element, self)


@dataclass(eq=False)
class Builder:
    """The expressions of one kernel."""

    _known: dict[tuple[Any, ...], Scalar] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def make(self, op: str, element: Element, *arguments: Scalar, datum: Any = None, below: int = WORDS) -> Scalar:
        level = max((argument.level for argument in arguments), default=Level.CONSTANT)
        stage = max((argument.stage for argument in arguments), default=0)
        return self._intern(op, element, arguments, datum, level, stage, below)

    def constant(self, element: Element, value: Number) -> Scalar:
        whole = int(value) % WORDS if element is U32 else value
        below = int(whole) + 1 if element is U32 else WORDS
        # By its text: 0.0 and -0.0 are equal and not the same.
        return self._intern("constant", element, (), whole, Level.CONSTANT, 0, below, text=repr(whole))

    def like(self, other: Scalar, value: Scalar | Number) -> Scalar:
        return value if isinstance(value, Scalar) else self.constant(other.element, value)

    def leaf(self, leaf: Leaf, below: int = WORDS) -> Scalar:
        """Zero where that is the only value it can have."""
        if below == 1:
            return self.constant(U32, 0)
        level = Level.ELEMENT if leaf is Leaf.INDEX else Level.ROW
        return self._intern(leaf.value, U32, (), below, level, 0, below)

    def start(self, name: str) -> Scalar:
        """The word of its memory where a value begins: a constant that is known when all values have their place."""
        return self._intern("start", U32, (), name, Level.CONSTANT, 0, WORDS)

    def hidden_zero(self) -> Scalar:
        """A u32 that is zero, and that no compiler can know to be."""
        return self._intern("hidden", U32, (), None, Level.ROW, 0, 1)

    def load(self, memory: Memory, element: Element, offset: Scalar) -> Scalar:
        """A word of a buffer; a bool is a word that isn't zero."""
        found = self._intern("load", U32 if element is BOOL else element, (offset,), memory, max(offset.level, Level.ROW),
                             offset.stage, WORDS)  # fmt: skip
        return found.differs(0) if element is BOOL else found

    def reduced(self, number: int, element: Element, stage: int) -> Scalar:
        """The result of a kernel's reduction, known from ``stage`` on."""
        return self._intern("reduced", element, (), number, Level.ROW, stage, WORDS)

    def _intern(self, op: str, element: Element, arguments: tuple[Scalar, ...], datum: Any, level: Level, stage: int,
                below: int, text: str | None = None) -> Scalar:  # fmt: skip
        key = (op, element, *map(id, arguments), datum if text is None else text)
        found = self._known.get(key)
        if found is None:
            found = Scalar(self, op, element, arguments, datum, level, stage, below, len(self._known))
            self._known[key] = found
        return found

    def compare(self, op: str, x: Scalar, other: Scalar | Number) -> Scalar:
        y = self.like(x, other)
        if op == "lt" and x.element is U32 and y.op == "constant" and x.below <= y.datum:
            return self.constant(BOOL, True)
        return self.make(op, BOOL, x, y)

    def select(self, condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
        if yes is no:
            return yes
        if condition.op == "constant":
            return yes if condition.datum else no
        return self.make("select", yes.element, condition, yes, no, below=max(yes.below, no.below))

    def binary(self, op: str, x: Scalar, other: Scalar | Number) -> Scalar:
        y = self.like(x, other)
        if x.element is U32:
            return _fold(self, op, x, y)
        return self.make(op, x.element, x, y)


def _fold(builder: Builder, op: str, x: Scalar, y: Scalar) -> Scalar:
    """A u32 operation, simpler where constants and bounds allow it."""
    if x.op == "constant" and y.op == "constant":
        return builder.constant(U32, _EXACT[op](x.datum, y.datum))
    if x.op == "constant" and op in ("add", "mul", "and", "or", "xor"):
        x, y = y, x
    if y.op == "constant":
        simpler = _with_constant(op, x, y.datum)
        if simpler is not None:
            return simpler
    return builder.make(op, U32, x, y, below=min(WORDS, _bound(op, x.below, y)))


_EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << (y & 31),
    "shr": lambda x, y: x >> (y & 31),
}


def _with_constant(op: str, x: Scalar, y: int) -> Scalar | None:
    if (y == 0 and op in ("add", "sub", "or", "xor", "shl", "shr")) or (y == 1 and op in ("mul", "div")):
        return x
    if (y == 0 and op in ("mul", "and")) or (y == 1 and op == "mod"):
        return x.builder.constant(U32, 0)
    if op in ("div", "mod"):
        return _divided(op, x, y)
    return None


def _divided(op: str, x: Scalar, y: int) -> Scalar | None:
    """Quotient or remainder of x = q·y + r, where that form is in sight."""
    if x.below <= y:
        return x if op == "mod" else x.builder.constant(U32, 0)
    quotient, rest = x, None
    if x.op == "add":
        quotient, rest = x.arguments
        if rest.below > y or x.below >= WORDS:
            return None
    if quotient.op == "mul" and quotient.arguments[1].op == "constant" and quotient.arguments[1].datum == y:
        if quotient.below >= WORDS:
            return None
        if op == "div":
            return quotient.arguments[0]
        return rest if rest is not None else x.builder.constant(U32, 0)
    return None


def _bound(op: str, x: int, y: Scalar) -> int:
    match op:
        case "add":
            return x + y.below - 1
        case "mul":
            return (x - 1) * (y.below - 1) + 1
        case "and":
            return min(x, y.below)
        case "div" if y.op == "constant":
            return (x - 1) // int(y.datum) + 1
        case "mod":
            return min(x, y.below - 1) if y.op == "constant" else x
        case "shr":
            return x
    return WORDS
