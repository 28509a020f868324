"""The closed table of epilogue nodes: what a user-traced epilogue may compute, and what each node means.

An epilogue sees the logits and hidden states of one pass. Its Program runs several passes of the same epilogue in one call,
so every value has a leading *batch* axis and **every node maps over it**; shapes, axes and attributes below are those of one
pass. In a Program a node is an op of kind ``node.<name>``.

Meaning holds for every input, in every language:

- float32 throughout; integers wrap at 32 bits. No row node turns NaN-free logits into NaN: in softmax and its kin an
  entry equal to the maximum counts exp(0), also where the maximum is infinite.
- Ties go to the lowest index. ``argmax``, ``top_k`` and ``sort`` are therefore unique.
- An index out of range reads zero (gather, take_along) or writes nothing (scatter). Integer division by zero gives 0;
  shift counts are taken modulo 32.
- float to integer truncates and saturates, NaN becomes 0; anything to bool is "not zero".

``rows`` counts from the pass's last row back. Without it a source has all rows that the pass reads out, and where that is
one row there is no axis for it: ``logits`` is then [vocab].

Domains of operands: ``T`` is the node's own domain, one type for all its ``T`` operands; the others stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pie_edge.program import node_shapes as shapes
from pie_edge.program.node_shapes import Attributes, Shape
from pie_edge.program.node_types import Attribute, AttributeKind, NodeKind

PREFIX = "node."
"""Op kinds of epilogue nodes begin with this."""
KEEP_TOKEN = "keep_token"
"""The engine's own node, which no author can write: ``(x [B, …], slots u32 [B, …], tokens u32)`` writes each entry of f32, i32 or
u32, bit by bit, to its slot of the state ``tokens``, where later passes may find it; a slot past the end keeps nothing."""
TAKE_KEPT = "take_kept"
"""The other way: ``(given [B, …], slots u32 [B, …], tokens u32)`` is what lies in each entry's slot, as f32, i32 or u32; where a
slot is past the end it is what was given."""

_Rule = Callable[[Sequence[Shape], Attributes], Shape]

_AXIS = Attribute("axis", AttributeKind.AXIS, -1)
_FIRST_AXIS = Attribute("axis", AttributeKind.AXIS, 0)
_KEEP = Attribute("keepdims", AttributeKind.FLAG, False)
_ROWS = Attribute("rows", AttributeKind.INTEGER, None, low=1)
_SHAPE = Attribute("shape", AttributeKind.SHAPE, required=True)
_DTYPE = Attribute("dtype", AttributeKind.ELEMENT, required=True)
_SIZE = Attribute("size", AttributeKind.EXTENT, required=True, low=1)
_INDEX = Attribute("index", AttributeKind.INTEGER, required=True, high=63)
_VALUE = Attribute("value", AttributeKind.NUMBER, required=True)
_K = Attribute("k", AttributeKind.INTEGER, required=True, low=1)
_DESCENDING = Attribute("descending", AttributeKind.FLAG, False)
_MODE = Attribute("mode", AttributeKind.CHOICE, "set", choices=("set", "add", "min", "max"))
_START = Attribute("start", AttributeKind.EXTENT, None, low=-(2**31))
_STOP = Attribute("stop", AttributeKind.EXTENT, None, low=-(2**31))
_STEP = Attribute("step", AttributeKind.INTEGER, 1, low=1)
_AT = Attribute("at", AttributeKind.INTEGER, required=True, low=-(2**31))


def _operands(text: str) -> tuple[tuple[str, str], ...]:
    """``"x indices:int"`` → ``(("x", "T"), ("indices", "int"))``."""
    return tuple((name, domain or "T") for name, _, domain in (word.partition(":") for word in text.split()))


def _source(
    name: str, result: str, rule: _Rule, meaning: str, *attributes: Attribute, random: bool = False
) -> NodeKind:
    return NodeKind(name, (), (result,), rule, meaning, "any", attributes, 32 if random else 1, random)


def _unary(name: str, domain: str, meaning: str, cost: int = 1) -> NodeKind:
    return NodeKind(name, _operands("x"), ("T",), shapes.elementwise, meaning, domain, cost=cost)


def _binary(name: str, domain: str, meaning: str, cost: int = 1) -> NodeKind:
    return NodeKind(name, _operands("x y"), ("T",), shapes.elementwise, meaning, domain, cost=cost)


def _compare(name: str, domain: str, meaning: str) -> NodeKind:
    return NodeKind(name, _operands("x y"), ("bool",), shapes.elementwise, meaning, domain)


def _reduce(name: str, domain: str, result: str, meaning: str, cost: int = 1) -> NodeKind:
    return NodeKind(name, _operands("x"), (result,), shapes.reduced, meaning, domain, (_AXIS, _KEEP), cost)


def _along(name: str, domain: str, meaning: str, cost: int) -> NodeKind:
    return NodeKind(name, _operands("x"), ("T",), shapes.along_axis, meaning, domain, (_AXIS,), cost)


def _threshold(name: str, operands: str, meaning: str) -> NodeKind:
    return NodeKind(name, _operands(operands), ("f32",), shapes.threshold, meaning, "f32", (_KEEP,), 16)


def _order(name: str, rule: _Rule, meaning: str, attribute: Attribute) -> NodeKind:
    return NodeKind(name, _operands("x"), ("T", "u32"), rule, meaning, "number", (attribute,), 16)


def _bits(
    name: str, operands: str, result: str, rule: _Rule, meaning: str, domain: str, *attributes: Attribute
) -> NodeKind:
    return NodeKind(name, _operands(operands), (result,), rule, meaning, domain, attributes)


def _move(name: str, operands: str, rule: _Rule, meaning: str, *attributes: Attribute, domain: str = "any") -> NodeKind:
    return NodeKind(name, _operands(operands), ("T",), rule, meaning, domain, attributes)


_SOURCES = (
    _source(
        "logits",
        "f32",
        shapes.logit_rows,
        "logits of the last `rows` rows [rows, vocab]",
        _ROWS,
    ),
    _source(
        "hidden",
        "f32",
        shapes.hidden_rows,
        "hidden states of the last `rows` rows, after the last norm [rows, hidden]",
        _ROWS,
    ),
    _source("position", "u32", shapes.by_rows, "positions of the last `rows` rows [rows]", _ROWS),
    _source(
        "param", "dtype", shapes.given, "value number `index` of those given with the pass", _INDEX, _DTYPE, _SHAPE
    ),
    _source(
        "constant", "dtype", shapes.scalar, "a number of the epilogue itself, of the type of what it meets", _VALUE
    ),
    _source("iota", "u32", shapes.counted, "0, 1, … size − 1", _SIZE),
    _source(
        "uniform",
        "f32",
        shapes.given,
        "words of Threefry (threefry.py) as numbers in (0, 1): a stream for each row [rows, *shape]",
        _SHAPE,
        _ROWS,
        random=True,
    ),
    _source("gumbel", "f32", shapes.given, "−log(−log u) of what `uniform` gives", _SHAPE, _ROWS, random=True),
)

_ELEMENTWISE = (
    _unary("neg", "signed", "−x"),
    _unary("abs", "signed", "|x|"),
    _unary("sign", "signed", "−1, 0 or 1"),
    _unary("not", "bits", "the other truth value; all bits turned"),
    _unary("exp", "f32", "eˣ", 4),
    _unary("log", "f32", "natural logarithm; log 0 = −inf", 4),
    _unary("log1p", "f32", "log(1 + x)", 4),
    _unary("sqrt", "f32", "√x", 2),
    _unary("tanh", "f32", "hyperbolic tangent", 4),
    _unary("sigmoid", "f32", "1 / (1 + e⁻ˣ)", 4),
    _unary("floor", "f32", "the integer below"),
    _unary("ceil", "f32", "the integer above"),
    _unary("round", "f32", "the nearest integer, halves to even"),
    _binary("add", "number", "x + y"),
    _binary("sub", "number", "x − y"),
    _binary("mul", "number", "x · y"),
    _binary("div", "f32", "x / y"),
    _binary("floordiv", "int", "⌊x / y⌋"),
    _binary("mod", "int", "x − y·⌊x / y⌋"),
    _binary("pow", "f32", "xʸ", 8),
    _binary("minimum", "number", "the smaller"),
    _binary("maximum", "number", "the larger"),
    _binary("and", "bits", "x ∧ y, bit by bit"),
    _binary("or", "bits", "x ∨ y, bit by bit"),
    _binary("xor", "bits", "x ⊕ y, bit by bit"),
    _binary("shl", "int", "x · 2ʸ"),
    _binary("shr", "int", "⌊x / 2ʸ⌋"),
    _compare("eq", "any", "x = y"),
    _compare("ne", "any", "x ≠ y"),
    _compare("lt", "number", "x < y"),
    _compare("le", "number", "x ≤ y"),
    _compare("gt", "number", "x > y"),
    _compare("ge", "number", "x ≥ y"),
    _move("select", "condition:bool x y", shapes.elementwise, "x where the condition holds, else y"),
    NodeKind("cast", _operands("x:any"), ("dtype",), shapes.elementwise, "x as another type", attributes=(_DTYPE,)),
)

_ROWWISE = (
    _reduce("reduce_max", "number", "T", "the largest entry of an axis"),
    _reduce("reduce_min", "number", "T", "the smallest entry of an axis"),
    _reduce("reduce_sum", "number", "T", "the sum of an axis"),
    _reduce("reduce_mean", "f32", "T", "the mean of an axis"),
    _reduce("reduce_argmax", "number", "u32", "where the largest entry of an axis is"),
    _reduce("reduce_argmin", "number", "u32", "where the smallest entry of an axis is"),
    _reduce("reduce_any", "bool", "T", "whether some entry of an axis is true"),
    _reduce("reduce_all", "bool", "T", "whether every entry of an axis is true"),
    _reduce("logsumexp", "f32", "T", "log Σ eˣ over an axis", 4),
    _reduce("entropy", "f32", "T", "−Σ p log p in nats over an axis of logits, p their softmax", 8),
    _along("softmax", "f32", "eˣ / Σ eˣ over an axis", 4),
    _along("log_softmax", "f32", "x − log Σ eˣ over an axis", 4),
    _along("cumsum", "number", "running sums along an axis, each with its own entry", 2),
    _order("top_k", shapes.top, "the k largest entries of the last axis in falling order, and where they are", _K),
    _order("sort", shapes.same, "the last axis in order, and where its entries were", _DESCENDING),
    _threshold("kth_largest", "x k:int", "the k-th largest entry of the last axis; k is brought into 1 … its length"),
    _threshold(
        "nucleus",
        "x p:f32",
        "of logits: the largest entry down to which the entries, likeliest first, have probability p; the least for p ≥ 1",
    ),
    _threshold("min_p", "x p:f32", "of logits: max + log p, the logit of p times the likeliest entry's probability"),
    NodeKind(
        "gumbel_max",
        _operands("x"),
        ("u32",),
        shapes.last_reduced,
        "a draw from softmax over the last axis: argmax(x + gumbel), a stream for each row of x [rows, …]",
        "f32",
        (_ROWS,),
        32,
        random=True,
    ),
    _bits(
        "mask_logits",
        "x words:u32",
        "f32",
        shapes.masked,
        "x where bit i % 32 of word i // 32 is set, else −inf",
        "f32",
    ),
    _bits("unpack_bits", "words", "bool", shapes.unpacked, "bit i % 32 of word i // 32, for i < size", "u32", _SIZE),
    _bits("pack_bits", "x", "u32", shapes.packed, "words with x[i] as bit i % 32 of word i // 32, then zeros", "bool"),
)

_STRUCTURE = (
    _move("gather", "x indices:int", shapes.gathered, "x[indices] along the first axis: [*indices, *rest]"),
    _move(
        "take_along",
        "x indices:int",
        shapes.taken_along,
        "entries of each row's last axis: x [*lead, n], indices [*lead, …]",
    ),
    _move(
        "scatter",
        "x indices:int updates",
        shapes.scattered,
        "x with `updates` set, added, … at the indices of each row's last axis; of equal indices the last one sets",
        _MODE,
        domain="number",
    ),
    _move("reshape", "x", shapes.reshaped, "the same entries in another shape; one axis may be −1", _SHAPE),
    _move("broadcast", "x", shapes.broadcasted, "x repeated to a shape", _SHAPE),
    NodeKind(
        "slice",
        _operands("x"),
        ("T",),
        shapes.sliced,
        "x[start:stop:step] of an axis",
        attributes=(_AXIS, _START, _STOP, _STEP),
        normalise=shapes.slice_bounds,
    ),
    NodeKind(
        "index",
        _operands("x"),
        ("T",),
        shapes.indexed,
        "x[at] of an axis, which goes",
        attributes=(_FIRST_AXIS, _AT),
        normalise=shapes.index_position,
    ),
    _move("concat", "xs*", shapes.concatenated, "one after the other along an axis", _FIRST_AXIS),
    _move("stack", "xs*", shapes.stacked, "side by side along a new axis", _FIRST_AXIS),
)

NODES: Mapping[str, NodeKind] = {kind.name: kind for kind in (*_SOURCES, *_ELEMENTWISE, *_ROWWISE, *_STRUCTURE)}
