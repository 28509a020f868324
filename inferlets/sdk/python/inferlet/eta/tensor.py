"""Tensors of an epilogue: symbols that stand for values on the device and record what is done to them.

Nothing is computed here. An operator makes a new ``Tensor`` that remembers its node and its operands; ``trace.py`` writes
down those that a function's result needs. Shapes and types are checked by the host, which reports the line that made
the node.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from types import EllipsisType
from typing import Any, NoReturn

from inferlet.errors import EpilogueError

_serials = itertools.count()


class dtype(StrEnum):  # noqa: N801  (the name that programs write: dtype.f32)
    """What a tensor holds."""

    f32 = "f32"
    i32 = "i32"
    u32 = "u32"
    bool = "bool"


Elements = tuple[str, list[Any]]
"""A parameter as the host takes it: ``("floats" | "signed" | "unsigned" | "bools", values)``, row-major."""

CASES = {dtype.f32: "floats", dtype.i32: "signed", dtype.u32: "unsigned", dtype.bool: "bools"}


class Node:
    """One step of the computation. ``line`` is the author's file and line."""

    __slots__ = ("attributes", "inputs", "line", "op", "parameter", "serial")

    def __init__(self, op: str, inputs: tuple[Tensor, ...], attributes: dict[str, Any]) -> None:
        self.op = op
        self.inputs = inputs
        self.attributes = attributes
        self.parameter: Elements | None = None
        self.line = author_line()
        self.serial = next(_serials)


class Tensor:
    """A value on the device. Use operators and the functions of ``inferlet.eta``; it has no number until the pass ran."""

    __slots__ = ("node", "result")

    def __init__(self, node: Node, result: int = 0) -> None:
        self.node = node
        self.result = result

    def __repr__(self) -> str:
        return f"<Tensor {self.node.op} of {self.node.line}>"

    # Arithmetic.

    def __add__(self, other: Operand) -> Tensor:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return apply("div", other, self)

    def __floordiv__(self, other: Operand) -> Tensor:
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return apply("floordiv", other, self)

    def __mod__(self, other: Operand) -> Tensor:
        return apply("mod", self, other)

    def __rmod__(self, other: Operand) -> Tensor:
        return apply("mod", other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return apply("pow", self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return apply("pow", other, self)

    def __neg__(self) -> Tensor:
        return apply("neg", self)

    def __abs__(self) -> Tensor:
        return apply("abs", self)

    # Bits, and the logic of masks.

    def __and__(self, other: Operand) -> Tensor:
        return apply("and", self, other)

    def __rand__(self, other: Operand) -> Tensor:
        return apply("and", other, self)

    def __or__(self, other: Operand) -> Tensor:
        return apply("or", self, other)

    def __ror__(self, other: Operand) -> Tensor:
        return apply("or", other, self)

    def __xor__(self, other: Operand) -> Tensor:
        return apply("xor", self, other)

    def __rxor__(self, other: Operand) -> Tensor:
        return apply("xor", other, self)

    def __lshift__(self, other: Operand) -> Tensor:
        return apply("shl", self, other)

    def __rlshift__(self, other: Operand) -> Tensor:
        return apply("shl", other, self)

    def __rshift__(self, other: Operand) -> Tensor:
        return apply("shr", self, other)

    def __rrshift__(self, other: Operand) -> Tensor:
        return apply("shr", other, self)

    def __invert__(self) -> Tensor:
        return apply("not", self)

    # Comparison makes a tensor of bools, entry by entry.

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return apply("ne", self, other)

    def __lt__(self, other: Operand) -> Tensor:
        return apply("lt", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return apply("le", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return apply("gt", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return apply("ge", self, other)

    __hash__ = object.__hash__

    def __getitem__(self, key: Any) -> Tensor:
        """``x[3]``, ``x[1:4]``, ``x[..., -1]``, ``x[:, 0]``; ``x[indices]`` with a tensor gathers along the first axis."""
        if isinstance(key, Tensor):
            return apply("gather", self, key)
        return _subscript(self, key if isinstance(key, tuple) else (key,))

    # What would need the number now.

    def __bool__(self) -> NoReturn:
        _refuse(self, "has no truth value", "use select(condition, x, y), and & | ~ in place of and, or, not")

    def __iter__(self) -> NoReturn:
        _refuse(self, "can't be iterated over or unpacked", "index it, x[0], or use the reduce_ functions")

    def __len__(self) -> NoReturn:
        _refuse(self, "has no length", "lengths are the host's to check; the vocabulary's is \"vocab\"")

    def __contains__(self, item: object) -> NoReturn:
        _refuse(self, "can't be searched with `in`", "use reduce_any(x == item)")

    def __float__(self) -> NoReturn:
        _refuse(self, "is no number", "return it from the epilogue and await the result")

    __int__ = __index__ = __float__


Operand = Tensor | bool | int | float | Sequence[Any]
"""What may stand where a tensor is wanted: a number becomes a constant, a list or array a parameter."""


def apply(op: str, *operands: object, **attributes: Any) -> Tensor:
    """A node's first result. Attributes that are None are left to their defaults."""
    inputs = tuple(as_tensor(operand) for operand in operands)
    return Tensor(Node(op, inputs, {name: value for name, value in attributes.items() if value is not None}))


def as_tensor(value: object) -> Tensor:
    """A tensor as it is; a number as a constant; a list as a parameter; else what the object's ``__tensor__()`` gives."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float):
        return apply("constant", value=_wire_number(value))
    if isinstance(value, list | tuple | array | bytes | bytearray | memoryview):
        return param(value)
    convert = getattr(value, "__tensor__", None)
    if convert is None:
        raise EpilogueError(
            f"{author_line()}: {type(value).__name__} can't be used with a Tensor; give a tensor, number or list"
        )
    return as_tensor(convert())


def param(value: Any, kind: str | None = None) -> Tensor:
    """A number, or a (nested) list of numbers, that comes with the pass: changing it needs no new epilogue.

    ``kind`` is a ``dtype``; without one bools are bool, whole numbers i32 and others f32.
    """
    shape, values = flattened(value)
    element = dtype(kind) if kind else natural(values)
    tensor = apply("param", dtype=element.value, shape=list(shape))
    tensor.node.parameter = (CASES[element], converted(element, values))
    return tensor


def flattened(value: Any) -> tuple[tuple[int, ...], Sequence[float]]:
    """Shape and row-major values of a number or nested list."""
    if isinstance(value, bool | int | float):
        return (), (value,)
    if isinstance(value, array | bytes | bytearray | memoryview):
        return (len(value),), value
    if not isinstance(value, list | tuple | range):
        raise EpilogueError(
            f"{author_line()}: a value is {value!r:.60}, of type {type(value).__name__}; give a number or a list of them"
        )
    rows = [flattened(row) for row in value]
    shapes = {shape for shape, _ in rows}
    if len(shapes) != 1:
        raise EpilogueError(f"{author_line()}: a value's rows must be of one length, and not empty")
    return (len(rows), *shapes.pop()), tuple(itertools.chain.from_iterable(values for _, values in rows))


def natural(values: Iterable[float]) -> dtype:
    """What numbers are where nobody says."""
    kinds = {type(value) for value in values}
    return dtype.bool if kinds == {bool} else dtype.i32 if kinds <= {bool, int} else dtype.f32


def converted(element: dtype, values: Iterable[Any]) -> list[Any]:
    """The values as the host takes them: none is rounded, wrapped or cut off on the way."""
    if element is dtype.f32:
        return [float(value) for value in values]
    if element is dtype.bool:
        return [bool(value) for value in values]
    low, high = (0, 2**32) if element is dtype.u32 else (-(2**31), 2**31)
    found = [int(value) for value in values]
    if not all(low <= value < high for value in found) or found != list(values):
        raise EpilogueError(f"{author_line()}: a value of {element} has whole numbers from {low} to {high - 1}")
    return found


def _wire_number(value: float) -> float | str:
    """JSON has no infinities."""
    if value != value:
        raise EpilogueError(f"{author_line()}: NaN can't be a constant")
    return ("inf" if value > 0 else "-inf") if value in (float("inf"), float("-inf")) else value


def _subscript(tensor: Tensor, keys: tuple[Any, ...]) -> Tensor:
    """Axes left of an ellipsis count from the front, those right of it from the end."""
    marks = [place for place, key in enumerate(keys) if isinstance(key, EllipsisType)]
    if len(marks) > 1:
        raise EpilogueError(f"{author_line()}: an index has one `...` at most")
    front = keys[: marks[0]] if marks else keys
    back = keys[marks[0] + 1 :] if marks else ()
    axis = 0
    for key in front:
        tensor = _select(tensor, key, axis)
        axis += isinstance(key, slice)
    for place, key in enumerate(back):
        tensor = _select(tensor, key, place - len(back))
    return tensor


def _select(tensor: Tensor, key: Any, axis: int) -> Tensor:
    if isinstance(key, slice):
        if key == slice(None):
            return tensor
        return apply("slice", tensor, axis=axis, start=key.start, stop=key.stop, step=key.step)
    if isinstance(key, int) and not isinstance(key, bool):
        return apply("index", tensor, axis=axis, at=key)
    raise EpilogueError(
        f"{author_line()}: {key!r} can't index a Tensor; use a number, a slice, `...`, or one tensor of indices"
    )


def _refuse(tensor: Tensor, what: str, remedy: str) -> NoReturn:
    raise EpilogueError(
        f"{author_line()}: the Tensor made at {tensor.node.line} {what} while an epilogue is traced; {remedy}"
    )


def author_line() -> str:
    """The nearest caller outside of the SDK, as ``file:line``."""
    for frame in _frames():
        module = str(frame.f_globals.get("__name__", ""))
        if module != "inferlet" and not module.startswith("inferlet."):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return "<unknown>"


def _frames() -> Iterator[Any]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]
