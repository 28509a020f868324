"""The guest's side: what tracing a Python function writes down, and what it refuses with the author's line."""

from __future__ import annotations

import inspect
import json
import math
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pie_edge import errors as host_errors
from pie_edge.program.nodes import NODES
from pie_edge.sampling import Epilogue, parse, presets
from tests.support.epilogues import run
from tests.support.node_oracle import Pass, Plain

sys.path.insert(0, str(Path(__file__).parents[2] / "inferlets/sdk/python"))

from inferlet.errors import EpilogueError
from inferlet.eta import intrinsics, ops
from inferlet.eta.tensor import Tensor, dtype, param
from inferlet.eta.trace import Traced, trace

VOCABULARY = 6
LOGITS = [0.5, -1.0, 3.0, 3.0, 2.0, -4.0]
Array = array("f", [1, 2, 3])


def checked(traced: Traced, rows: int = 1) -> Epilogue:
    return parse(traced.wire, vocabulary=VOCABULARY, rows=rows)


def compute(function: Callable[[], Any], rows: int = 1) -> Any:
    """What ``await`` would give for a pass whose rows all have LOGITS, at positions 10, 11, …"""
    traced = trace(function)
    epilogue = checked(traced, rows)
    parameters = [Plain(t.shape, values) for t, (_, values) in zip(epilogue.parameters, traced.parameters, strict=True)]
    given = Pass([LOGITS] * rows, [10 + row for row in range(rows)], [(1, 2)] * rows, parameters)
    (outputs,) = run(epilogue, [given])
    return traced.pack([plain.flat if plain.shape else plain.flat[0] for plain in outputs])


def test_the_quickstarts_epilogue_is_argmax() -> None:
    traced = trace(lambda: ops.reduce_argmax(intrinsics.logits()))
    assert checked(traced).preset == "argmax"
    assert (traced.parameters, traced.rows) == ([], 1)
    assert compute(lambda: ops.reduce_argmax(intrinsics.logits())) == 2


EXPRESSIONS: list[tuple[Callable[[], Any], Any]] = [
    (lambda: intrinsics.logits() + 1, [1.5, 0, 4, 4, 3, -3]),
    (lambda: (1 - intrinsics.logits() * 2) / 4, [0, 0.75, -1.25, -1.25, -0.75, 2.25]),
    (lambda: abs(-intrinsics.logits()) ** 2, [0.25, 1, 9, 9, 4, 16]),
    (lambda: ~(intrinsics.logits() > 0) & (intrinsics.logits() != -4) | (intrinsics.logits() == 2), [0, 1, 0, 0, 1, 0]),
    (
        lambda: ops.select(intrinsics.logits() >= 2, intrinsics.logits(), -math.inf),
        [-math.inf] * 2 + [3, 3, 2, -math.inf],
    ),
    (lambda: intrinsics.logits()[1:4], [-1, 3, 3]),
    (lambda: intrinsics.logits()[::3], [0.5, 3]),
    (lambda: intrinsics.logits()[-1], -4),
    (lambda: ops.stack([intrinsics.logits(), intrinsics.logits() + 1])[..., 0], [0.5, 1.5]),
    (lambda: ops.stack([intrinsics.logits(), intrinsics.logits() + 1])[1, 2:4], [4, 4]),
    (lambda: intrinsics.logits()[ops.iota(2) + 4], [2, -4]),
    (lambda: ops.iota(intrinsics.VOCAB) // 2 % 2 << 1 ^ 1, [1, 1, 3, 3, 1, 1]),
    (lambda: intrinsics.position() + 1, 11),
    (lambda: ops.cast(intrinsics.logits(), dtype.i32) >> 1, [0, -1, 1, 1, 1, -2]),
    (lambda: ops.scatter(intrinsics.logits(), [0, 5], 9.0), [9, -1, 3, 3, 2, 9]),
    (lambda: intrinsics.logits() + param([1, 2, 3, 4, 5, 6], dtype.f32), [1.5, 1, 6, 7, 7, 2]),
    (lambda: intrinsics.logits()[:3] * Array, [0.5, -2, 9]),
    (lambda: ops.take_along(intrinsics.logits(), param([3, 0], "u32")), [3, 0.5]),
    (lambda: ops.reshape(param([[1, 2, 3], [4, 5, 6]]), [6]), [1, 2, 3, 4, 5, 6]),
    (lambda: ops.unpack_bits(ops.pack_bits(intrinsics.logits() > 0), "vocab"), [1, 0, 1, 1, 1, 0]),
    (lambda: 2 ** ops.cast(intrinsics.position(), "f32"), 1024),
    (lambda: {"best": ops.reduce_max(intrinsics.logits()), "constant": 3}, {"best": 3, "constant": 3}),
    (lambda: ops.top_k(intrinsics.logits(), 3), ([3, 3, 2], [2, 3, 4])),
    (lambda: list(ops.sort(intrinsics.logits())), [[-4, -1, 0.5, 2, 3, 3], [5, 1, 0, 4, 2, 3]]),
]


@pytest.mark.parametrize(("function", "expected"), EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_an_expression_computes_what_python_would(function: Callable[[], Any], expected: Any) -> None:
    assert compute(function) == expected


def test_rows_are_those_the_pass_reads_out() -> None:
    assert compute(lambda: ops.reduce_argmax(intrinsics.logits()), rows=3) == [2, 2, 2]
    assert compute(lambda: intrinsics.position(), rows=3) == [10, 11, 12]
    assert compute(lambda: intrinsics.position(rows=2), rows=3) == [11, 12]
    assert trace(lambda: intrinsics.logits(rows=4)).rows == 4
    alone = [compute(lambda: intrinsics.uniform()) for _ in range(2)]
    assert alone[0] == alone[1] == compute(lambda: intrinsics.uniform(), rows=2)[0]


def test_every_node_has_a_function_or_an_operator_of_its_own() -> None:
    """Each public function is called once with tensors; together they reach the whole table."""
    x = intrinsics.logits()
    bits = x > 0
    tensors: list[Any] = [
        -x,
        abs(x),
        x + x,
        x - x,
        x * x,
        x / x,
        x // x,
        x % x,
        x**x,
        x << x,
        x >> x,
        ~bits,
        bits & bits,
    ]
    tensors += [
        intrinsics.hidden(),
        intrinsics.position(),
        intrinsics.uniform(),
        intrinsics.gumbel(),
        param(1),
        x[1],
        x[1:],
        x + 1,
    ]
    for name, function in inspect.getmembers(ops, inspect.isfunction):
        if function.__module__ != ops.__name__ or name in ("sample", "keep", "_check_settings"):
            continue
        required = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        given = {"xs": [x, x], "shape": [6], "size": 6, "kind": dtype.i32, "k": 2}
        found = function(*(given.get(parameter, x) for parameter in required))
        tensors += found if isinstance(found, tuple) else [found]
    reached = {node["op"] for node in json.loads(trace(lambda: tensors).wire)["nodes"]}
    assert reached == set(NODES)


def test_only_what_the_result_needs_is_written_down_and_shared_parts_once() -> None:
    def function() -> Tensor:
        ops.softmax(intrinsics.logits())
        x = intrinsics.logits()
        return ops.reduce_max(x) - ops.reduce_min(x)

    assert [node["op"] for node in json.loads(trace(function).wire)["nodes"]] == [
        "logits",
        "reduce_max",
        "reduce_min",
        "sub",
    ]


def test_a_changed_parameter_changes_the_pass_and_not_the_epilogue() -> None:
    def at(temperature: float) -> Traced:
        return trace(lambda: ops.gumbel_max(intrinsics.logits() / param(temperature)))

    cold, warm = at(0.5), at(1.5)
    assert cold.wire == warm.wire
    assert (cold.parameters, warm.parameters) == ([("floats", [0.5])], [("floats", [1.5])])


def test_an_object_may_say_which_tensor_it_stands_for() -> None:
    class Stored:
        def __tensor__(self) -> Tensor:
            return param([1.0] * VOCABULARY)

    assert compute(lambda: intrinsics.logits() + Stored()) == [value + 1 for value in LOGITS]


def test_the_hosts_error_names_the_authors_line() -> None:
    here = inspect.currentframe()
    assert here is not None
    wrong, line = trace(lambda: intrinsics.logits() + ops.iota(3)), here.f_lineno
    says = rf"test_sampling_trace\.py:{line}: 'add'\(f32\[6\], u32\[3\]\)"
    with pytest.raises(host_errors.EpilogueError, match=says):
        checked(wrong)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: 1 if intrinsics.logits() > 0 else 2, "has no truth value .* use select"),
    (lambda: intrinsics.logits() > 0 and 1, "use select"),
    (lambda: max(intrinsics.logits()), "can't be iterated over .* index it"),
    (lambda: len(intrinsics.logits()), 'has no length .* "vocab"'),
    (lambda: 3 in intrinsics.logits(), "use reduce_any"),
    (lambda: float(intrinsics.logits()), "is no number .* await the result"),
    (lambda: range(intrinsics.position()), "is no number"),
    (lambda: intrinsics.logits() + "1", "str can't be used with a Tensor"),
    (lambda: intrinsics.logits()["a"], "'a' can't index a Tensor"),
    (lambda: intrinsics.logits()[..., ..., 0], "one `...` at most"),
    (lambda: intrinsics.logits() + math.nan, "NaN can't be a constant"),
    (lambda: param([[1, 2], [3]]), "of one length, and not empty"),
    (lambda: param([]), "of one length, and not empty"),
    (lambda: param(-1, "u32"), "u32 has whole numbers from 0 to 4294967295"),
    (lambda: param(1.5, dtype.i32), "i32 has whole numbers"),
    (lambda: ops.sample(temperature=-1.0), "temperature is -1.0"),
    (lambda: ops.sample(top_p=0.0), "top_p is 0.0"),
    (lambda: ops.sample(top_k=-3), "top_k is -3"),
    (lambda: ops.sample(min_p=2.0), "min_p is 2.0"),
    (lambda: None, "returned None; return a tensor"),
    (dict, "returned nothing"),
    (lambda: object(), "object can't be used with a Tensor"),
]


@pytest.mark.parametrize(("function", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_traced_is_refused_with_what_to_do(function: Callable[[], Any], says: str) -> None:
    with pytest.raises(EpilogueError, match=says) as refusal:
        trace(function)
    assert "returned" in says or "test_sampling_trace.py:" in str(refusal.value)


def test_what_no_model_gives_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="no 'attention' for epilogues; it has logits, hidden, position"):
        trace(lambda: intrinsics.attention())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.5, "min_p": 0.25}, {"temperature": 0.0}]
)
def test_the_sdks_sample_is_the_hosts_preset(settings: dict[str, Any]) -> None:
    traced, preset = trace(lambda: ops.sample(**settings)), presets.sample(**settings)
    assert checked(traced).digest == parse(preset.wire, vocabulary=VOCABULARY, rows=1).digest
    codes = {"floats": "f", "unsigned": "I"}
    assert tuple(array(codes[case], values).tobytes() for case, values in traced.parameters) == preset.parameters
