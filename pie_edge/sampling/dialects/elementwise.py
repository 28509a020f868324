"""The elementwise nodes as scalar expressions: a node's results at one place from its operands' at that place."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from pie_edge.sampling.dialects import functions
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, U32, Scalar

Expression = Callable[..., Scalar]


def _sign(x: Scalar) -> Scalar:
    zero = x.builder.constant(x.element, 0)
    # A sum, because of −0 it makes 0 and a NaN it leaves.
    return (x > 0).where(1, (x < 0).where(-1, _sum(x, zero) if x.element is F32 else zero))


def _minimum(x: Scalar, y: Scalar) -> Scalar:
    """A NaN wins."""
    first = x <= y
    return (first | functions.is_nan(x) if x.element is F32 else first).where(x, y)


def _maximum(x: Scalar, y: Scalar) -> Scalar:
    first = x >= y
    return (first | functions.is_nan(x) if x.element is F32 else first).where(x, y)


def _magnitude(x: Scalar) -> Scalar:
    """|x| as u32: it holds that of the least i32 as well."""
    word = x.bits(U32)
    return (x < 0).where(-word, word)


def _kept(x: Scalar) -> Scalar:
    """A constant zero, if this is one, as a value that no compiler knows. Drivers, llvmpipe among them, make 0 of x · 0 and x of
    x + 0 though they promise to keep signs of zero, infinities and NaNs."""
    if x.op != "constant" or x.datum != 0:
        return x
    sign = 1 << 31 if math.copysign(1.0, x.datum) < 0 else 0
    return (x.builder.hidden_zero() | sign).bits(F32)


def _arithmetic(op: str, exact: Callable[[float, float], float]) -> Expression:
    """Of floats as IEEE 754 has it, signs of zero included. Of two constants it is done here."""

    def made(x: Scalar, y: Scalar) -> Scalar:
        if x.element is not F32:
            return x.builder.binary(op, x, y)
        if x.op == y.op == "constant":
            # Rounding a double's result once more is exact for these operations.
            return x.builder.constant(
                F32, functions.rounded(exact(functions.rounded(x.datum), functions.rounded(y.datum)))
            )
        return x.builder.binary(op, _kept(x), _kept(y))

    return made


_sum, _difference = _arithmetic("add", operator.add), _arithmetic("sub", operator.sub)
_product, _ratio = _arithmetic("mul", operator.mul), _arithmetic("div", operator.truediv)


def _divided(x: Scalar, y: Scalar) -> Scalar:
    """A compiler may make anything of a division by a constant zero, and llvmpipe does; infinity times x is what it means."""
    if y.op == "constant" and y.datum == 0:
        return _product(x, x.builder.constant(F32, math.copysign(math.inf, y.datum)))
    return _ratio(x, y)


def _quotient(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """⌊x / y⌋ and x − y·⌊x / y⌋, both 0 for y = 0."""
    none = y.equals(0)
    if x.element is U32:
        divisor = none.where(1, y)
        return none.where(0, x // divisor), none.where(0, x % divisor)
    size = _magnitude(y)
    divisor = none.where(1, size)
    quotient, rest = _magnitude(x) // divisor, _magnitude(x) % divisor
    opposite = (x < 0).differs(y < 0)
    down = opposite & rest.differs(0)
    signed = opposite.where(-quotient, quotient).bits(I32)
    floor = down.where(signed - 1, signed)
    return none.where(0, floor), none.where(0, x - y * floor)


def _shift(op: str) -> Expression:
    def shifted(x: Scalar, y: Scalar) -> Scalar:
        return x.builder.binary(op, x, y & 31)

    return shifted


def _not(x: Scalar) -> Scalar:
    return ~x


EXPRESSIONS: Mapping[str, Expression] = {
    "neg": lambda x: -x,
    "abs": lambda x: x.unary("abs"),
    "sign": _sign,
    "not": _not,
    "exp": functions.exp,
    "log": functions.log,
    "log1p": functions.log1p,
    "sqrt": lambda x: x.unary("sqrt"),
    "tanh": functions.tanh,
    "sigmoid": functions.sigmoid,
    "floor": lambda x: x.unary("floor"),
    "ceil": lambda x: x.unary("ceil"),
    "round": lambda x: x.unary("round"),
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "div": _divided,
    "floordiv": lambda x, y: _quotient(x, y)[0],
    "mod": lambda x, y: _quotient(x, y)[1],
    "pow": functions.power,
    "minimum": _minimum,
    "maximum": _maximum,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x.differs(y) if x.element is BOOL else x ^ y,
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "eq": lambda x, y: x.equals(y),
    "ne": lambda x, y: x.differs(y),
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "select": lambda condition, x, y: condition.where(x, y),
}
