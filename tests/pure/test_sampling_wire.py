"""The wire form of epilogues: what is refused and how, what the digest depends on, and that no text does harm."""

from __future__ import annotations

import copy
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import EpilogueError
from pie_edge.program.node_types import Attribute, AttributeKind, Element, NodeKind
from pie_edge.program.nodes import NODES
from pie_edge.sampling import Epilogue, parse, presets
from pie_edge.sampling.check import MAX_BYTES, MAX_COST
from pie_edge.sampling.wire import MAX_NODES
from tests.support.epilogues import Wire, run
from tests.support.node_oracle import Pass, Plain

LINE = "program.py:7"


def document(*nodes: tuple[Any, ...], outputs: list[Any] | None = None) -> str:
    """A wire form of ``(op, inputs, attributes)``; the output is the last node."""
    entries = [{"op": op, "in": list(inputs), "attrs": attributes, "line": LINE} for op, inputs, attributes in nodes]
    last = [len(nodes) - 1]
    return json.dumps({"v": 1, "nodes": entries, "outputs": last if outputs is None else outputs})


LOGITS = ("logits", [], {})
FIVE = ("iota", [], {"size": 5})
NOISE = ("uniform", [], {"shape": [5]})
REFUSED: list[tuple[str, str]] = [
    ("", "isn't valid JSON"),
    ("[" * 100_000, "isn't valid JSON|nested too deeply"),
    ("x" * 200_000, "has 200000 bytes, the most is 131072"),
    ("[]", "the epilogue is \\[\\], not an object"),
    ('{"v":1,"nodes":[],"outputs":[NaN]}', "NaN is not JSON"),
    ('{"v":2,"nodes":[],"outputs":[0]}', "version is 2, this build reads 1"),
    ('{"v":1,"nodes":[],"outputs":[]}', "no output"),
    ('{"v":1,"nodes":[],"outputs":[0]}', "node 0 doesn't come before"),
    ('{"v":1,"nodes":[],"outputs":[0],"more":1}', "unknown fields \\['more'\\]"),
    ('{"v":1,"nodes":[{"op":"logits"}],"outputs":[0],"result":["a","b"]}', "a key for each of the 1 outputs"),
    ('{"v":1,"nodes":[{"op":"logits"}],"outputs":[0,0]}', "result is one tensor and there are 2 outputs"),
    ('{"v":1,"nodes":[{"op":7}],"outputs":[0]}', "op is 7, not a name"),
    ('{"v":1,"nodes":[{"op":"logits","line":[]}],"outputs":[0]}', "line is \\[\\], not text"),
    (document(LOGITS, outputs=[True]), "True is no reference"),
    (document(LOGITS, outputs=[-1]), "node -1 doesn't come before"),
    (document(LOGITS, outputs=[[0, 1]]), "has 1 results, and number 1 is asked for"),
    (document(("exp", [0], {})), "node 0: in: node 0 doesn't come before"),
    (document(*[LOGITS] * (MAX_NODES + 1)), f"nodes has {MAX_NODES + 1} entries"),
    (document(LOGITS, ("softmaxx", [0], {})), f"{LINE}: 'softmaxx'\\(f32\\[64\\]\\): there is no such node; near are softmax"),
    (document(LOGITS, ("hiddens", [], {})), "'hiddens'\\(\\): there is no such node; near are hidden"),
    (document(LOGITS, ("exp", [0, 0], {})), "takes 1 operands \\(x\\), and 2 are given"),
    (document(("concat", [], {})), "takes 1 operands \\(xs\\*\\), and 0 are given"),
    (document(LOGITS, ("softmax", [0], {"axes": 1})), "no attribute 'axes'; it takes \\['axis'\\]"),
    (document(LOGITS, ("softmax", [0], {"axis": 1})), "axis 1 of a tensor with 1 axes; give -1 … 0"),
    (document(LOGITS, ("softmax", [0], {"axis": True})), "axis is True, not a whole number"),
    (document(LOGITS, ("reduce_max", [0], {"keepdims": 1})), "keepdims is 1, not true or false"),
    (document(LOGITS, ("top_k", [0], {})), "attribute k is missing"),
    (document(LOGITS, ("top_k", [0], {"k": 0})), "k is 0, not a whole number from 1"),
    (document(LOGITS, ("top_k", [0], {"k": 65})), f"{LINE}: 'top_k'\\(f32\\[64\\]\\): k=65 and the last axis of \\[64\\] has 64"),
    (document(LOGITS, ("cast", [0], {"dtype": "f16"})), "dtype is 'f16', not one of f32, i32, u32, bool"),
    (document(LOGITS, FIVE, ("add", [0, 1], {})), "'add'\\(f32\\[64\\], u32\\[5\\]\\): f32 meets u32; cast one"),
    (document(LOGITS, NOISE, ("add", [0, 1], {})), "\\[64\\] and \\[5\\] don't broadcast: axis -1 is 5 and 64"),
    (document(FIVE, ("exp", [0], {})), "x is u32, and it takes f32; cast it first"),
    (document(FIVE, ("constant", [], {"value": 0.5}), ("mul", [0, 1], {})), "constant 0.5 meets u32"),
    (document(FIVE, ("constant", [], {"value": -1}), ("add", [0, 1], {})), "constant -1 meets u32"),
    (document(("constant", [], {"value": "nan"})), "value is 'nan', not a float32 number"),
    (document(("constant", [], {"value": 1e39})), "value is 1e\\+39, not a float32 number"),
    (document(("logits", [], {"rows": 4})), "rows=4, and the pass reads out 3"),
    (document(("logits", [], {"rows": 0})), "rows is 0, not a whole number from 1"),
    (document(LOGITS, ("reshape", [0], {"shape": [7, -1]})), "\\[64\\] has 64 entries and can't become \\[7, -1\\]"),
    (document(("uniform", [], {"shape": [-1]})), "axes have at least 1 entry"),
    (document(("uniform", [], {"shape": [1, 1, 1, 1, 1]})), "not a list of up to 4 lengths"),
    (document(("uniform", [], {"shape": [4096, 8192]})), "at most 4 axes and 16777216 entries"),
    (document(LOGITS, ("slice", [0], {"start": 64})), "the slice of axis 0 of \\[64\\] is empty"),
    (document(LOGITS, ("index", [0], {"at": 64})), "index 64 is outside axis -1 of \\[64\\]"),
    (document(("param", [], {"index": 1, "dtype": "f32", "shape": []})), "numbered \\[1\\]; number them from 0"),
    (document(*[("param", [], {"index": 0, "dtype": "f32", "shape": []})] * 2), "parameter 0 is declared twice"),
    (document(("param", [], {"index": 64, "dtype": "f32", "shape": []})), "index is 64, not a whole number from 0 to 63"),
    (document(LOGITS, ("unpack_bits", [0], {"size": 64})), "words is f32, and it takes u32"),
    (document(LOGITS, ("iota", [], {"size": 3}), ("mask_logits", [0, 1], {})), "the mask is \\[3\\]; \\[64\\] needs \\[2\\]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=range(len(REFUSED)))
def test_a_bad_epilogue_is_refused_with_what_is_wrong(text: str, says: str) -> None:
    # One row has no axis, which is what most shapes above are about.
    rows = 3 if "rows" in text else 1
    with pytest.raises(EpilogueError, match=says) as refusal:
        parse(text, vocabulary=64, rows=rows)
    assert len(str(refusal.value)) < 500


def test_bytes_are_read_as_text_is_and_bad_bytes_are_refused() -> None:
    wire = presets.argmax().wire
    assert parse(wire.encode(), vocabulary=64, rows=1).digest == parse(wire, vocabulary=64, rows=1).digest
    with pytest.raises(EpilogueError, match="isn't valid JSON"):
        parse(b'{"v": "\xff"}', vocabulary=64, rows=1)


def test_work_across_rows_wants_reduced_values() -> None:
    wide = document(("logits", [], {"rows": 2}), ("cumsum", [0], {"axis": 0}))
    with pytest.raises(EpilogueError, match=r"across the rows of \[2, 40000\].*reduce each row first"):
        parse(wide, vocabulary=40_000, rows=2)
    reduced = document(("logits", [], {"rows": 2}), ("top_k", [0], {"k": 8}), ("reshape", [1], {"shape": [16]}))
    assert parse(reduced, vocabulary=40_000, rows=2).outputs[0].shape == (16,)


def test_rows_of_hidden_states_may_be_pooled_and_need_no_logits() -> None:
    pooled = document(("hidden", [], {"rows": 512}), ("reduce_mean", [0], {"axis": 0}))
    found = parse(pooled, vocabulary=8, rows=512, hidden=8192)
    assert (found.outputs[0].shape, found.reads_hidden, found.reads_logits) == ((8192,), True, False)
    both = document(LOGITS, ("hidden", [], {}), ("reduce_sum", [0], {}), ("mul", [1, 2], {}))
    assert parse(both, vocabulary=8, rows=1, hidden=4).reads_logits
    with pytest.raises(EpilogueError, match=r"across the rows of \[513, 8192\].*the most for that is 4194304"):
        parse(pooled.replace("512", "513"), vocabulary=8, rows=513, hidden=8192)
    with pytest.raises(EpilogueError, match="'hidden'.*no hidden states are read out here"):
        parse(pooled, vocabulary=8, rows=512)


def test_an_epilogue_that_works_too_long_is_refused_at_the_node_where_it_does() -> None:
    nodes = [LOGITS, *(("sort", [index], {}) for index in range(200))]
    with pytest.raises(EpilogueError, match=f"{LINE}: 'sort'.*the most is {MAX_COST}"):
        parse(document(*nodes), vocabulary=262_144, rows=1)


def test_an_epilogue_that_holds_too_much_memory_is_refused() -> None:
    # Nineteen values of 16 MiB are alive before the first two are added.
    terms = [("neg", [0], {})] * 19
    sums = [("add", [1, 2], {}), *(("add", [number + 17, number], {}) for number in range(3, 20))]
    with pytest.raises(EpilogueError, match=f"MiB of values for one pass, the most is {MAX_BYTES >> 20}"):
        parse(document(LOGITS, *terms, *sums), vocabulary=2**22, rows=1)


def test_the_same_text_gives_the_same_epilogue() -> None:
    wire = presets.sample(0.5, top_k=9).wire
    assert parse(wire, vocabulary=64, rows=1) is parse(wire, vocabulary=64, rows=1)
    assert parse(wire, vocabulary=64, rows=1) is not parse(wire, vocabulary=65, rows=1)


def test_the_digest_ignores_lines_spelling_and_unused_nodes_and_nothing_else() -> None:
    plain = json.loads(
        document(LOGITS, ("constant", [], {"value": 2}), ("mul", [0, 1], {}), ("reduce_argmax", [2], {}))
    )
    digest = parse(json.dumps(plain), vocabulary=64, rows=1).digest
    # Stored programs and every backend's cache are found by it: it changes only with the meaning of a node.
    assert digest == "b7bda73c3a23d917eaee11e1dc171b42446a4fd62d00520961bf015141a96fc2"

    def changed(**change: Any) -> str:
        other = copy.deepcopy(plain)
        for path, value in change.items():
            node, _, field = path.partition("__")
            other["nodes"][int(node[1:])][field] = value
        return parse(json.dumps(other), vocabulary=64, rows=1).digest

    assert changed(n3__line="elsewhere.py:99") == digest
    assert changed(n1__attrs={"value": 2.0}) == digest
    assert changed(n3__attrs={"axis": 0, "keepdims": False}) == digest
    unused = [*plain["nodes"], {"op": "exp", "in": [0], "attrs": {}, "line": ""}]
    assert parse(json.dumps(plain | {"nodes": unused}), vocabulary=64, rows=1).digest == digest
    different = {
        changed(n1__attrs={"value": 3}),
        changed(n2__op="div"),
        changed(n2__in=[1, 0]),
        changed(n3__op="reduce_argmin"),
        changed(n3__attrs={"keepdims": True}),
        parse(json.dumps(plain), vocabulary=65, rows=1).digest,
        parse(json.dumps(plain), vocabulary=64, rows=2).digest,
    }
    assert len(different | {digest}) == 8


def test_a_constant_takes_the_type_of_what_it_meets() -> None:
    wire = Wire()
    two = wire.add("constant", value=2)
    products = [wire.add("mul", wire.add("logits"), two), wire.add("mul", two, wire.add("iota", size=3)), two]
    found = parse(wire.text(*products), vocabulary=8, rows=1)
    assert [str(output) for output in found.outputs] == ["f32[8]", "u32[3]", "i32[]"]


GOLDEN = """\
program epilogue-{digest}-B2
  state logits: f32[6, 8]
  input counts: u32[1]
  input rows: u32[4]
  input positions: u32[4]
  input draw_keys: u32[4, 2]
  input param0: f32[2, 8]
  temp logits0: f32[2, 2, 8]
  temp add2: f32[2, 2, 8]
  temp top_k3: f32[2, 2, 3]
  output out0: u32[2, 2, 3]
  output out1: u32[2, 2]
  output out2: u32[2, 2]
  logits0 = node.logits(logits, rows) pass_rows=2 rows=2
  add2 = node.add(logits0, param0)
  top_k3, out0 = node.top_k(add2) k=3
  out1 = node.gumbel_max(top_k3, draw_keys, positions) draw=0 pass_rows=2 rows=2
  out2 = node.broadcast(out1)
"""


def test_an_epilogue_lowers_to_a_program_with_a_batch_axis() -> None:
    wire = Wire()
    best = wire.add("top_k", wire.add("add", wire.add("logits"), wire.parameter("f32", ["vocab"])), k=3)
    drawn = wire.add("gumbel_max", best)
    epilogue = parse(wire.text([best, 1], drawn, drawn), vocabulary=8, rows=2)
    assert str(epilogue.program(5, 6)) == GOLDEN.format(digest=epilogue.digest[:16])
    with pytest.raises(EpilogueError, match="reads 2 rows a pass; the bucket has 1"):
        epilogue.program(1)


# Any text at all: an epilogue or an EpilogueError, soon.

SEEDS = [
    presets.argmax().wire,
    presets.sample(0.7, 40, 0.9, 0.1).wire,
    document(
        LOGITS,
        ("top_k", [0], {"k": 3}),
        ("gather", [0, 1], {}),
        ("reshape", [1], {"shape": [3, 1]}),
        outputs=[[1, 1], 3],
    ),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([*NODES, "vocab", "inf", "f32", "\ud800", ""]),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key inside."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    found = [(value, key) for key in keys]
    return found + [place for key in keys for place in places(value[key])]


def runs(epilogue: Epilogue) -> bool:
    """Whatever passes the check computes something of the stated type, twice the same."""
    zeros = [Plain(shape, [0] * math.prod(shape)) for _, shape in epilogue.parameters]
    logits = [[float(index % 7) for index in range(epilogue.graph.vocabulary)]] * epilogue.rows
    passes = [Pass(logits, [5] * epilogue.rows, [(1, 2)] * epilogue.rows, zeros)] * 2
    first, second = run(epilogue, passes, spare=1)
    return repr(first) == repr(second)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_mutated_epilogue_is_parsed_or_refused(data: st.DataObject) -> None:
    mutant = json.loads(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        container, key = data.draw(st.sampled_from(places(mutant)))
        if data.draw(st.booleans()):
            container[key] = data.draw(VALUES)
        elif isinstance(container, list):
            container.insert(key, data.draw(VALUES | st.just(copy.deepcopy(container[key]))))
        else:
            del container[key]
        if not places(mutant):
            break
    started = time.monotonic()
    try:
        epilogue = parse(json.dumps(mutant), vocabulary=4099, rows=2)
    except EpilogueError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert runs(epilogue)
    assert refusal.isprintable()
    assert time.monotonic() - started < 2


def attribute_values(attribute: Attribute) -> st.SearchStrategy[Any]:
    small = st.integers(-2, 4)
    return {
        AttributeKind.INTEGER: small,
        AttributeKind.EXTENT: small | st.just("vocab"),
        AttributeKind.SHAPE: st.lists(st.sampled_from([1, 2, 3, 33, -1, "vocab"]), max_size=3),
        AttributeKind.AXIS: small,
        AttributeKind.FLAG: st.booleans(),
        AttributeKind.NUMBER: st.sampled_from([0, 1, -1, 0.5, 1e30, "inf", "-inf", True]),
        AttributeKind.ELEMENT: st.sampled_from(list(Element)),
        AttributeKind.CHOICE: st.sampled_from([*attribute.choices, "other"]),
    }[attribute.kind]


def candidates(kind: NodeKind) -> st.SearchStrategy[tuple[str, list[int], dict[str, Any]]]:
    """A node that is right but for its operands' types and the values of its attributes."""
    operands = st.lists(st.integers(0, 15), min_size=len(kind.operands), max_size=len(kind.operands) + kind.variadic)
    given = {a.name: attribute_values(a) for a in kind.attributes}
    required = {a.name: given.pop(a.name) for a in kind.attributes if a.required}
    return st.tuples(st.just(kind.name), operands, st.fixed_dictionaries(required, optional=given))


# One tensor of every element and of the shapes that nodes ask for.
START = [
    LOGITS,
    ("iota", [], {"size": 2}),
    ("cast", [1], {"dtype": "i32"}),
    ("lt", [2, 2], {}),
    ("param", [], {"index": 0, "dtype": "u32", "shape": []}),
    ("param", [], {"index": 1, "dtype": "f32", "shape": []}),
    ("reduce_argmax", [0], {}),
    ("broadcast", [4], {"shape": [2, 2]}),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(list(NODES.values())).flatmap(candidates), min_size=8, max_size=25))
def test_whatever_passes_the_check_runs(nodes: list[Any]) -> None:
    accepted: list[Any] = [*START]
    for op, inputs, given_attributes in nodes:
        node = (op, [len(accepted) - 1 - index % len(accepted) for index in inputs], given_attributes)
        try:
            epilogue = parse(document(*accepted, node, outputs=[len(accepted)]), vocabulary=33, rows=2)
        except EpilogueError as error:
            assert str(error).isprintable()  # noqa: PT017  (being refused is one of two right answers)
        else:
            accepted.append(node)
            assert runs(epilogue)
