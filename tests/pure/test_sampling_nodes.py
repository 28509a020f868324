"""Every epilogue node in NumPy, batched, against plain Python, one pass at a time."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from pie_edge.program.node_reference import MEANINGS
from pie_edge.program.nodes import KEEP_TOKEN, NODES, TAKE_KEPT
from pie_edge.sampling import Epilogue, parse
from tests.support import node_oracle
from tests.support.epilogues import HIDDEN, Wire, node_table, run
from tests.support.node_oracle import Pass, Plain, evaluate

INF = math.inf
VOCABULARY = 40

F = ("f32", (6,), [3.0, -1.5, 0.0, 2.5, 2.5, -INF])
G = ("f32", (6,), [2.0, 2.0, -0.5, 2.5, INF, 4.0])
F2 = ("f32", (2, 4), [1.0, 1.0, -2.0, 0.5, -INF, 7.0, 7.0, 6.9])
HOPELESS = ("f32", (2, 3), [-INF, -INF, -INF, INF, 1.0, INF])
ONE = ("f32", (1,), [-0.75])
SCALAR = ("f32", (), [2.25])
POSITIVE = ("f32", (5,), [0.0, 0.25, 1.0, 7.5, 100.0])
I = ("i32", (5,), [7, -7, 0, -2147483648, 2147483647])  # noqa: E741
J = ("i32", (5,), [2, 2, 5, -3, 0])
U = ("u32", (5,), [7, 0, 4294967295, 3, 3])
V = ("u32", (5,), [2, 33, 3, 0, 4294967295])
I2 = ("i32", (2, 3), [5, -1, 5, 0, 0, -9])
B = ("bool", (5,), [True, False, True, True, False])
C = ("bool", (5,), [True, True, False, True, False])
B2 = ("bool", (2, 3), [True, True, True, False, False, True])
WORDS = ("u32", (2,), [0xDEADBEEF, 0x8000_0001])

Case = tuple[str, list[Any], dict[str, Any]]

UNARY: list[Case] = [
    *((name, [x], {}) for name in ("neg", "abs", "sign") for x in (F, I2, SCALAR)),
    *((name, [x], {}) for name in ("exp", "tanh", "sigmoid", "floor", "ceil", "round") for x in (F, ONE, HOPELESS)),
    *((name, [POSITIVE], {}) for name in ("log", "log1p", "sqrt")),
    *(("not", [x], {}) for x in (B, I, U)),
    *(("cast", [x], {"dtype": to}) for x in (F, G, I, U, B) for to in ("f32", "i32", "u32", "bool")),
]
BINARY: list[Case] = [
    *(
        (name, [x, y], {})
        for name in ("add", "sub", "mul", "minimum", "maximum")
        for x, y in ((ONE, G), (I, J), (U, V))
    ),
    *((name, [x, y], {}) for name in ("lt", "le", "gt", "ge", "eq", "ne") for x, y in ((F, G), (I, J), (U, V))),
    *((name, [B, C], {}) for name in ("eq", "ne", "and", "or", "xor")),
    *(
        (name, [x, y], {})
        for name in ("and", "or", "xor", "shl", "shr", "floordiv", "mod")
        for x, y in ((I, J), (U, V))
    ),
    ("div", [F, ("f32", (6,), [2.0, 0.0, 3.0, -0.0, 1e-3, 8.0])], {}),
    ("pow", [POSITIVE, SCALAR], {}),
    ("add", [F2, ("f32", (4,), [0.5, 1.0, 2.0, 3.0])], {}),
    ("mul", [("f32", (2, 1), [3.0, -1.0]), ("f32", (1, 3), [1.0, 2.0, 4.0])], {}),
    ("sub", [SCALAR, F2], {}),
    ("select", [B, I, J], {}),
    ("select", [("bool", (2, 1), [True, False]), F2, SCALAR], {}),
]
REDUCTIONS: list[Case] = [
    *(
        (name, [x], {"axis": axis, "keepdims": keep})
        for name in ("reduce_max", "reduce_min", "reduce_sum", "reduce_argmax", "reduce_argmin")
        for x in (F2, I2)
        for axis, keep in ((-1, False), (0, True))
    ),
    *(
        (name, [x], {"axis": -1})
        for name in ("logsumexp", "entropy", "softmax", "log_softmax")
        for x in (F, F2, HOPELESS, ONE)
    ),
    *(
        (name, [F2], {"axis": 0})
        for name in ("logsumexp", "entropy", "softmax", "log_softmax", "reduce_mean", "cumsum")
    ),
    ("reduce_mean", [F2], {"keepdims": True}),
    ("reduce_sum", [("f32", (3, 2000), [float(i % 37 - 18) for i in range(6000)])], {"axis": 0}),
    ("reduce_sum", [I], {}),
    ("cumsum", [I], {}),
    ("cumsum", [U], {}),
    *((name, [B2], {"axis": axis}) for name in ("reduce_any", "reduce_all") for axis in (0, 1)),
]
ORDER: list[Case] = [
    *(("top_k", [x], {"k": k}) for x in (F, F2, I2, U, HOPELESS) for k in (1, 3)),
    *(("sort", [x], {"descending": falling}) for x in (F, F2, I, U, ONE) for falling in (False, True)),
    *(("kth_largest", [x, ("i32", (), [k])], {}) for x in (F, F2, ONE) for k in (-1, 1, 3, 99)),
    ("kth_largest", [F2, ("u32", (2,), [1, 4])], {"keepdims": True}),
    *(("nucleus", [x, ("f32", (), [p])], {}) for x in (F, F2, HOPELESS, ONE) for p in (0.0, 0.3, 0.77, 0.999, 1.0)),
    ("nucleus", [F2, ("f32", (2,), [0.2, 0.9])], {"keepdims": True}),
    *(("min_p", [x, ("f32", (), [p])], {}) for x in (F, F2, ONE) for p in (0.0, 0.1, 1.0)),
    ("gumbel_max", [F], {}),
    ("gumbel_max", [F2], {}),
    ("gumbel_max", [HOPELESS], {}),
]
STRUCTURE: list[Case] = [
    ("mask_logits", [("f32", (34,), [float(i) for i in range(34)]), WORDS], {}),
    ("mask_logits", [("f32", (2, 3), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ("u32", (2, 1), [5, 6])], {}),
    ("unpack_bits", [WORDS], {"size": 40}),
    ("unpack_bits", [WORDS], {"size": "vocab"}),
    ("pack_bits", [B], {}),
    ("pack_bits", [("bool", (2, 33), [i % 3 == 0 for i in range(66)])], {}),
    ("gather", [F, J], {}),
    ("gather", [F2, ("u32", (3,), [1, 0, 9])], {}),
    ("gather", [B, ("i32", (), [2])], {}),
    ("take_along", [F2, ("i32", (2,), [3, 0])], {}),
    ("take_along", [F2, ("u32", (2, 3), [3, 0, 4, 1, 1, 2])], {}),
    ("take_along", [I, J], {}),
    *(
        ("scatter", [F, ("i32", (4,), [1, 1, -1, 5]), ("f32", (4,), [9.0, -8.0, 7.0, 0.5])], {"mode": m})
        for m in ("set", "add", "min", "max")
    ),
    ("scatter", [I2, ("u32", (2, 2), [0, 2, 1, 3]), ("i32", (), [4])], {"mode": "add"}),
    ("reshape", [I2], {"shape": [3, -1]}),
    ("reshape", [I2], {"shape": [6]}),
    ("reshape", [SCALAR], {"shape": [1, 1]}),
    ("broadcast", [I2], {"shape": [4, 2, 3]}),
    ("broadcast", [SCALAR], {"shape": [3]}),
    ("broadcast", [("i32", (2, 1), [4, 5])], {"shape": [2, 3]}),
    ("slice", [F], {"start": -4, "stop": None, "step": 2}),
    ("slice", [I2], {"axis": 0, "start": 1}),
    ("slice", [F2], {"axis": -1, "stop": 3}),
    ("index", [I2], {"at": -1}),
    ("index", [I2], {"axis": 1, "at": 0}),
    ("concat", [I2, I2, ("i32", (1, 3), [1, 2, 3])], {}),
    ("concat", [F2, F2], {"axis": -1}),
    ("stack", [B, C], {}),
    ("stack", [I, J, I], {"axis": -1}),
]
SOURCES: list[Case] = [
    *((name, [], {"rows": rows}) for name in ("logits", "hidden", "position") for rows in (None, 1, 2)),
    ("param", [], {"index": 0, "dtype": "i32", "shape": [2]}),
    ("constant", [], {"value": 0.1}),
    ("constant", [], {"value": "-inf"}),
    ("constant", [], {"value": -3}),
    ("iota", [], {"size": 7}),
    ("iota", [], {"size": "vocab"}),
    *(
        (name, [], {"shape": shape, "rows": rows})
        for name in ("uniform", "gumbel")
        for shape in ([], [5], [2, 3], ["vocab"])
        for rows in (None, 2)
    ),
]
CASES = UNARY + BINARY + REDUCTIONS + ORDER + STRUCTURE + SOURCES


def a_pass(parameters: list[Plain], rows: int, salt: int, vocabulary: int = VOCABULARY) -> Pass:
    noise = random.Random(salt)
    return Pass(
        [[node_oracle.single(noise.gauss(0, 3)) for _ in range(vocabulary)] for _ in range(rows)],
        [100 * salt + row for row in range(rows)],
        [(noise.getrandbits(32), noise.getrandbits(32)) for _ in range(rows)],
        parameters,
        [[node_oracle.single(noise.gauss(0, 3)) for _ in range(HIDDEN)] for _ in range(rows)],
    )


def close(found: Plain, expected: Plain, tolerance: float = 2e-6) -> bool:
    return found.shape == expected.shape and all(
        (math.isnan(a) and math.isnan(b)) or a == b or abs(a - b) <= tolerance * max(1, abs(b))
        for a, b in zip(found.flat, expected.flat, strict=True)
    )


RUNS = [(*case, rows) for case in CASES for rows in (1, 3) if rows >= (case[2].get("rows") or 1)]


def of_one_node(tried: tuple[str, list[Any], dict[str, Any], int]) -> tuple[Epilogue, list[Pass]]:
    """An epilogue that gives all of a node's results, and three passes of it."""
    name, operands, attributes, rows = tried
    wire = Wire()
    inputs = [wire.parameter(dtype, shape) for dtype, shape, _ in operands]
    node = wire.add(name, *inputs, **attributes)
    results = len(NODES[name].results)
    epilogue = parse(
        wire.text(*([node, result] for result in range(results))), vocabulary=VOCABULARY, rows=rows, hidden=HIDDEN
    )
    forward = [Plain(shape, list(values)) for _, shape, values in operands]
    backward = [Plain(shape, list(values)[::-1]) for _, shape, values in operands]
    if name == "param":
        forward, backward = [Plain((2,), [1, -2])], [Plain((2,), [3, 4])]
    passes = [a_pass(given, rows, salt) for salt, given in enumerate((forward, backward, forward), 1)]
    return epilogue, passes


@pytest.mark.parametrize("node", RUNS, ids=[f"{i}-{r[0]}" for i, r in enumerate(RUNS)])
def test_a_node_agrees_with_plain_python(node: Any) -> None:
    epilogue, passes = of_one_node(node)
    for given, found in zip(passes, run(epilogue, passes, spare=2), strict=True):
        expected = evaluate(epilogue.graph, given)
        for got, want in zip(found, expected, strict=True):
            assert close(got, want), (got.flat, want.flat)


def test_every_node_of_the_table_has_a_meaning_and_a_case() -> None:
    # A parameter is an input of the Program, not an op; two are the engine's own.
    assert set(NODES) == set(node_oracle.MEANINGS) == {*MEANINGS, "param"} - {KEEP_TOKEN, TAKE_KEPT}
    assert {name for name, _, _ in CASES} == set(NODES)


WIDE = ["reduce_argmax", "reduce_max", "logsumexp", "entropy", "softmax", "log_softmax", "top_k", "sort", "gumbel_max"]


@pytest.mark.parametrize("name", [*WIDE, "kth_largest", "nucleus"])
def test_a_node_holds_over_a_real_vocabulary(name: str) -> None:
    vocabulary = 49_152
    given = a_pass([], 1, 5, vocabulary)
    # Ties at the top and a masked tail, as grammar constraints leave them.
    given.logits[0][40_000] = given.logits[0][7] = max(given.logits[0]) + 1
    given.logits[0][45_000:] = [-INF] * (vocabulary - 45_000)
    wire = Wire()
    operands = [wire.add("logits")]
    if name in ("kth_largest", "nucleus"):
        operands.append(wire.add("constant", value={"kth_largest": 50, "nucleus": 0.9}[name]))
    node = wire.add(name, *operands, **({"k": 256} if name == "top_k" else {}))
    outputs = [[node, result] for result in range(len(NODES[name].results))]
    epilogue = parse(wire.text(*outputs), vocabulary=vocabulary, rows=1)
    (found,) = run(epilogue, [given])
    for got, want in zip(found, evaluate(epilogue.graph, given), strict=True):
        # Sums of 49,152 float32 terms.
        assert close(got, want, 2e-5)


def test_softmax_of_nothing_but_minus_infinity_is_uniform_and_never_nan() -> None:
    wire = Wire()
    masked = wire.add("mask_logits", wire.add("logits"), wire.parameter("u32", [2]))
    epilogue = parse(wire.text(wire.add("softmax", masked), wire.add("entropy", masked)), vocabulary=40, rows=1)
    ((probabilities, entropy),) = run(epilogue, [a_pass([Plain((2,), [0, 0])], 1, 1)])
    assert probabilities.flat == pytest.approx([1 / 40] * 40)
    assert entropy.flat == pytest.approx([math.log(40)])


def test_the_documented_nodes_are_those_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/epilogues.md").read_text(encoding="utf-8")
    assert page.endswith(f"\n{node_table()}"), (
        "write tests.support.epilogues.node_table() to the end of docs/epilogues.md"
    )
