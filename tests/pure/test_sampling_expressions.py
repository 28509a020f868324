"""Scalar expressions: functions as exact as NumPy's, draws bit for bit, indices that fold away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.program import threefry
from pie_edge.program.node_reference_random import gumbel
from pie_edge.sampling.dialects import elementwise, functions, random
from pie_edge.sampling.dialects.indexing import delinear, linear
from pie_edge.sampling.dialects.scalar import F32, I32, U32, Builder, Leaf, Scalar
from tests.support.plan_interpreter import evaluate

SPECIAL = np.float32(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 88.72, 88.73, -87.4, -103.9, -104, 1e38]
)


def samples(low: float = -100, high: float = 100) -> Any:
    noise = np.random.default_rng(0)
    wide, near = noise.uniform(low, high, 20000), noise.normal(0, 1e-3, 5000)
    return np.concatenate([wide, near[(near > low) & (near < high)], 1 + near]).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "meaning", "values"),
    [
        (functions.exp, np.exp, samples(-87, 88)),
        (functions.log, np.log, samples(1e-30, 1e6)),
        (functions.log, np.log, np.float32([1.2e-38, 3e38, 1 + 2.0**-23, 1 - 2.0**-24])),
        (functions.log1p, np.log1p, samples(-0.99, 1e5)),
        (functions.tanh, np.tanh, samples(-12, 12)),
        (functions.sigmoid, lambda x: 1 / (1 + np.exp(-x)), samples(-80, 80)),
    ],
)
def test_a_function_is_within_three_units_in_the_last_place(
    function: Callable[[Scalar], Scalar], meaning: Callable[[Any], Any], values: Any
) -> None:
    found = evaluate(function(Builder().make("x", F32)), x=values).astype(np.float64)
    wanted = meaning(values.astype(np.float64))
    assert (np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))).max() < 3


@pytest.mark.parametrize(
    "name", ["exp", "log", "log1p", "tanh", "sigmoid", "sign", "abs", "neg", "floor", "ceil", "round"]
)
def test_a_function_of_special_values_is_what_numpy_says(name: str) -> None:
    meanings: dict[str, Callable[[Any], Any]] = {
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "round": np.rint,
        "neg": np.negative,
    }
    with np.errstate(all="ignore"):
        wanted = meanings.get(name, getattr(np, name, None))(SPECIAL)  # type: ignore[misc]
    found = evaluate(elementwise.EXPRESSIONS[name](Builder().make("x", F32)), x=SPECIAL)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_with_a_constant_zero_is_never_left_to_a_compiler(name: str, zero: float) -> None:
    """Signs of zero, infinities and NaNs are as NumPy has them, and no operation sees the constant."""
    meanings = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    for first in (True, False):
        builder = Builder()
        operands = [builder.constant(F32, zero), builder.make("x", F32)]
        made = elementwise.EXPRESSIONS[name](*(operands if first else operands[::-1]))
        assert all(one.op != "constant" or one.datum != 0 for one in made.arguments)
        with np.errstate(all="ignore"):
            arrays = [np.float32(zero), SPECIAL]
            wanted = meanings[name](*(arrays if first else arrays[::-1]))
        found = evaluate(made, x=SPECIAL)
        np.testing.assert_array_equal(found, wanted)
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(wanted)[known])


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_division_by_a_constant_zero_is_never_left_to_a_compiler(zero: float) -> None:
    builder = Builder()
    made = elementwise.EXPRESSIONS["div"](builder.make("x", F32), builder.constant(F32, zero))
    assert made.op != "div"
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate(made, x=SPECIAL), SPECIAL / np.float32(zero))


def test_a_power_is_what_numpy_says_for_all_pairs_of_special_values() -> None:
    x, y = (grid.reshape(-1) for grid in np.meshgrid(SPECIAL, SPECIAL[:13]))
    builder = Builder()
    found = evaluate(functions.power(builder.make("x", F32), builder.make("y", F32)), x=x, y=y)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.power(x, y), rtol=1e-5)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4), st.integers(0, 2**32 - 1))
def test_a_draw_is_the_words_of_threefry(words: list[int], element: int) -> None:
    builder = Builder()
    k0, k1, position, index = (builder.make(name, U32) for name in ("k0", "k1", "position", "index"))
    word = random.word(random.stream(builder, (k0, k1), position, 5), index)
    leaves = {name: np.uint32(value) for name, value in zip(("k0", "k1", "position"), words, strict=False)}
    found = evaluate(word, **leaves, index=np.uint32(element))
    assert int(found) == threefry.word(threefry.stream((words[0], words[1]), words[2], 5), element)


def test_noise_is_within_a_millionth_of_its_value() -> None:
    numbers = np.float32(2.0**-24) * np.float32([1, 3, 2**24 - 1, *range(1, 2**24, 40001)])
    found = evaluate(random.gumbel(Builder().make("u", F32)), u=numbers)
    np.testing.assert_allclose(found, gumbel(numbers.astype(np.float64)), rtol=1e-6, atol=1e-6)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integers_divide_as_python_does(x: int, y: int) -> None:
    for element, wrap in ((I32, lambda v: (v + 2**31) % 2**32 - 2**31), (U32, lambda v: v % 2**32)):
        builder, a, b = Builder(), wrap(x), wrap(y)
        for name, wanted in (("floordiv", a // b if b else 0), ("mod", a % b if b else 0)):
            leaves = {"a": np.int64(a).astype(element.value.replace("i", "int").replace("u", "uint")), "b": np.int64(b)}
            leaves["b"] = leaves["b"].astype(leaves["a"].dtype)
            found = evaluate(
                elementwise.EXPRESSIONS[name](builder.make("a", element), builder.make("b", element)), **leaves
            )
            assert int(found) == wrap(wanted)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_coordinates_of_a_linear_number_fold_back_to_themselves(shape: list[int]) -> None:
    builder = Builder()
    number = builder.leaf(Leaf.INDEX, int(np.prod(shape)))
    coordinates = delinear(number, shape)
    assert delinear(linear(coordinates, shape, builder), shape) == coordinates
    places = np.arange(np.prod(shape), dtype=np.uint32)
    for found, wanted in zip(coordinates, np.unravel_index(places, shape), strict=True):
        np.testing.assert_array_equal(np.broadcast_to(evaluate(found, index=places), places.shape), wanted)


def test_an_expression_is_one_object_however_often_it_is_made() -> None:
    builder = Builder()
    x = builder.make("x", F32)
    assert functions.exp(x) is functions.exp(x)
    assert builder.constant(F32, 0.0) is not builder.constant(F32, -0.0)
