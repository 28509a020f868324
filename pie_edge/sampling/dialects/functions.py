"""Transcendental functions of float32 as sums and products, so that they are as exact in one language as in another.

Shading languages promise little: Vulkan's ``log`` may be off by 2⁻²¹ near 1, which is where the noise of a draw's winner
comes from. These are within about one unit in the last place. The approximations are S. L. Moshier's minimax polynomials
(Cephes, single precision); ranges are reduced by exact steps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import copysign, inf, nan

from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, Scalar

_LOG2E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_SQRT_HALF = 0.707106781186547524
_SMALLEST_NORMAL = 2.0**-126
_EXP_OVERFLOWS, _EXP_VANISHES = 88.7228394, -103.97208
_ODD_BELOW = 2.0**24
"""Above, every float32 is an even integer."""


def rounded(value: float) -> float:
    """The nearest float32."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return copysign(inf, value)
    return found


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Horner's rule, the highest power first."""
    total = x.builder.constant(F32, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def is_nan(x: Scalar) -> Scalar:
    return x.differs(x)


def clamp(x: Scalar, low: float, high: float) -> Scalar:
    """NaN becomes ``low``."""
    return (x > low).where((x < high).where(x, high), low)


def exp(x: Scalar) -> Scalar:
    within = clamp(x, _EXP_VANISHES, _EXP_OVERFLOWS)
    whole = (within * _LOG2E).unary("round")
    rest = within - whole * _LN2_HIGH - whole * _LN2_LOW
    value = polynomial(rest, _EXP) * (rest * rest) + rest + 1.0
    # 2ⁿ in two steps: n may lie outside the exponents of normal numbers.
    count = whole.convert(I32)
    half = count >> 1
    value = value * _power_of_two(half) * _power_of_two(count - half)
    value = (x > _EXP_OVERFLOWS).where(inf, value)
    value = (x < _EXP_VANISHES).where(0.0, value)
    return is_nan(x).where(x, value)


def _power_of_two(count: Scalar) -> Scalar:
    return ((count + 127) << 23).bits(F32)


def log(x: Scalar) -> Scalar:
    tiny = x < _SMALLEST_NORMAL
    value = log_normal(tiny.where(x * 2.0**24, x), tiny.where(x.builder.constant(I32, -24), 0))
    value = x.equals(inf).where(x, value)
    value = x.equals(0.0).where(-inf, value)
    return (x >= 0.0).where(value, nan)


def log_normal(x: Scalar, exponent: Scalar | None = None) -> Scalar:
    """Of a positive normal number; ``exponent`` powers of two are added to it."""
    word = x.bits(I32)
    power = (word >> 23) - 126
    mantissa = ((word & 0x7FFFFF) | 0x3F000000).bits(F32)
    low = mantissa < _SQRT_HALF
    rest = low.where(mantissa + mantissa, mantissa) - 1.0
    power = low.where(power - 1, power)
    scale = (power if exponent is None else power + exponent).convert(F32)
    square = rest * rest
    value = polynomial(rest, _LOG) * rest * square + scale * _LN2_LOW - square * 0.5
    return (rest + value) + scale * _LN2_HIGH


def log1p(x: Scalar) -> Scalar:
    """Kahan's: log u times how much of x is lost in u = 1 + x."""
    total = x + 1.0
    gained = total - 1.0
    value = gained.equals(0.0).where(x, log(total) * (x / gained))
    return x.equals(inf).where(x, value)


def tanh(x: Scalar) -> Scalar:
    size, square = x.unary("abs"), x * x
    near = polynomial(square, _TANH) * square * x + x
    far = 1.0 - 2.0 / (exp(size + size) + 1.0)
    far = (x < 0.0).where(-far, far)
    # −0 stays so, which the polynomial forgets.
    return (size < 0.625).where(x.equals(0.0).where(x, near), is_nan(x).where(x, far))


def sigmoid(x: Scalar) -> Scalar:
    return 1.0 / (exp(-x) + 1.0)


def power(x: Scalar, y: Scalar) -> Scalar:
    """x to the y. Its relative error is about that of float32 times |y · log x|."""
    size = x.unary("abs")
    value = size.equals(1.0).where(1.0, exp(y * log(size)))
    negative = x.bits(I32) < 0
    value = (negative & _is_odd(y)).where(-value, value)
    roots = negative & y.unary("floor").differs(y) & size.differs(0.0) & size.differs(inf)
    return (y.equals(0.0) | x.equals(1.0)).where(1.0, roots.where(nan, value))


def _is_odd(y: Scalar) -> Scalar:
    half = y * 0.5
    return y.unary("floor").equals(y) & (y.unary("abs") < _ODD_BELOW) & half.unary("floor").differs(half)


def to_integer(x: Scalar, element: Element) -> Scalar:
    """Truncates and saturates; NaN becomes 0."""
    low, high, largest = (-(2.0**31), 2.0**31, 2**31 - 1) if element is I32 else (0.0, 2.0**32, 2**32 - 1)
    inside = (x > low) & (x < high)
    value = inside.where(x, 0.0).convert(element)
    value = (x >= high).where(largest, value)
    if element is I32:
        value = (x <= low).where(-(2**31), value)
    return value


def cast(x: Scalar, element: Element) -> Scalar:
    if x.element is element:
        return x
    if element is BOOL:
        return x.differs(0)
    if x.element is BOOL:
        return x.where(x.builder.constant(element, 1), 0)
    if x.element is F32:
        return to_integer(x, element)
    return x.convert(element) if element is F32 else x.bits(element)
