"""Shape rules of epilogue nodes: from the shapes of one pass's operands to the shape of its results.

A rule knows nothing of the batch: every node maps over the passes of a call. Rules raise ``NodeError`` with what was
given and what would do; ``pie_edge.sampling`` adds which node it was and the user's line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

Shape = tuple[int, ...]
AttributeValue = int | float | str | bool | Shape | None
Attributes = Mapping[str, AttributeValue]

REDUCED = 4096
"""Entries of the largest value that a node may work on *across* rows (beams, verification). Wider values stay in their
row, so that one kernel can do a row."""
POOLED = 2**22
"""Of the largest that may be reduced across rows: what is left of it is one row."""


class NodeError(ValueError):
    """An operand or attribute that the node can't take. The message is for the epilogue's author."""


def integer(attributes: Attributes, name: str) -> int:
    value = attributes[name]
    assert isinstance(value, int)
    return value


def show(shape: Shape) -> str:
    return str(list(shape))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape, aligned at the last axis; an axis of 1 stretches."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(-rank, 0):
        extents = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(extents) > 1:
            given, differ = " and ".join(map(show, shapes)), " and ".join(map(str, sorted(extents)))
            raise NodeError(
                f"shapes {given} don't broadcast: axis {axis} is {differ}; make the axes equal, or 1 with reshape"
            )
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def across_rows(shape: Shape, what: str, most: int = REDUCED) -> None:
    """Refuse work across the rows of a value that hasn't been reduced yet."""
    if prod(shape) > most:
        raise NodeError(
            f"{what} works across the rows of {show(shape)}, {prod(shape)} entries; the most for that is {most}: "
            "reduce each row first (reduce_*, top_k, take_along)"
        )


def _axis(shapes: Sequence[Shape], attributes: Attributes, most: int = REDUCED) -> int:
    """The negative axis; refused where it isn't the last one of a value of more than ``most`` entries."""
    axis = integer(attributes, "axis")
    if axis != -1:
        across_rows(shapes[0], f"axis {axis}", most)
    return axis


def elementwise(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return broadcast_shapes(*shapes)


def along_axis(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """Softmax, cumsum: keeps the shape."""
    _axis(shapes, attributes)
    return shapes[0]


def reduced(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis = _axis(shapes, attributes, POOLED) + len(shapes[0])
    kept = (1,) if attributes.get("keepdims") else ()
    return shapes[0][:axis] + kept + shapes[0][axis + 1 :]


def indexed(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis = _axis(shapes, attributes) + len(shapes[0])
    return shapes[0][:axis] + shapes[0][axis + 1 :]


def same(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    _rank_one(shapes[0])
    return shapes[0]


def _rank_one(shape: Shape) -> None:
    if not shape:
        raise NodeError("it works along the last axis and was given a scalar")


def last_reduced(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """gumbel_max: the last axis goes; with ``rows`` the first axis must be the pass's rows."""
    _rank_one(shapes[0])
    rows = attributes["rows"]
    if rows is not None and (len(shapes[0]) < 2 or shapes[0][0] != rows):
        raise NodeError(f"rows={rows} wants operands of [{rows}, …], and this one is {show(shapes[0])}")
    return shapes[0][:-1]


def threshold(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """kth_largest, nucleus, min_p: one threshold a row; the argument is a scalar or one a row."""
    _rank_one(shapes[0])
    lead = shapes[0][:-1]
    if shapes[1] not in ((), lead):
        raise NodeError(f"its argument is {show(shapes[1])}; for rows {show(shapes[0])} give a scalar or {show(lead)}")
    return (*lead, 1) if attributes["keepdims"] else lead


def top(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    _rank_one(shapes[0])
    k, extent = integer(attributes, "k"), shapes[0][-1]
    if k > extent:
        raise NodeError(f"k={k} and the last axis of {show(shapes[0])} has {extent}")
    return (*shapes[0][:-1], k)


def gathered(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """gather: entries (or whole rows) of the first axis."""
    _rank_one(shapes[0])
    if len(shapes[0]) > 1:
        across_rows(shapes[0], "gather along the first axis")
    return shapes[1] + shapes[0][1:]


def taken_along(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """take_along: entries of each row's last axis."""
    _rank_one(shapes[0])
    lead = shapes[0][:-1]
    if shapes[1][: len(lead)] != lead:
        raise NodeError(
            f"indices {show(shapes[1])} must begin with {show(lead)}, the leading axes of {show(shapes[0])}"
        )
    return shapes[1]


def scattered(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """scatter: updates [*lead, n] go to positions [*lead, n] of the last axis of [*lead, N]."""
    base, indices, updates = shapes
    taken_along((base, indices), attributes)
    if len(indices) != len(base):
        raise NodeError(f"indices {show(indices)} must have as many axes as {show(base)}")
    if updates not in ((), indices):
        raise NodeError(f"updates {show(updates)} must be a scalar or {show(indices)}, like the indices")
    return base


def masked(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """mask_logits: one bit an entry of the last axis."""
    _rank_one(shapes[0])
    words = (shapes[0][-1] + 31) // 32
    if shapes[1] not in ((words,), (*shapes[0][:-1], words)):
        raise NodeError(f"the mask is {show(shapes[1])}; {show(shapes[0])} needs [{words}], 32 entries a word")
    return shapes[0]


def unpacked(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    _rank_one(shapes[0])
    size = integer(attributes, "size")
    if (size + 31) // 32 != shapes[0][-1]:
        raise NodeError(f"size={size} needs {(size + 31) // 32} words, and {show(shapes[0])} has {shapes[0][-1]}")
    return (*shapes[0][:-1], size)


def packed(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    _rank_one(shapes[0])
    return (*shapes[0][:-1], (shapes[0][-1] + 31) // 32)


def reshaped(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    wanted = attributes["shape"]
    assert isinstance(wanted, tuple)
    size, free = prod(shapes[0]), wanted.count(-1)
    known = prod(extent for extent in wanted if extent != -1)
    if free > 1 or (free and size % known) or (not free and known != size):
        raise NodeError(f"{show(shapes[0])} has {size} entries and can't become {show(wanted)}")
    result = tuple(size // known if extent == -1 else extent for extent in wanted)
    if shapes[0][-1:] != result[-1:]:
        across_rows(shapes[0], f"reshape to {show(result)}")
    return result


def broadcasted(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    wanted = attributes["shape"]
    assert isinstance(wanted, tuple)
    if broadcast_shapes(shapes[0], wanted) != wanted:
        raise NodeError(f"{show(shapes[0])} can't be broadcast to {show(wanted)}")
    return wanted


def sliced(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis = _axis(shapes, attributes) + len(shapes[0])
    kept = len(range(integer(attributes, "start"), integer(attributes, "stop"), integer(attributes, "step")))
    if not kept:
        raise NodeError(f"the slice of axis {axis} of {show(shapes[0])} is empty")
    return (*shapes[0][:axis], kept, *shapes[0][axis + 1 :])


def slice_bounds(shapes: Sequence[Shape], attributes: Attributes) -> Attributes:
    """Bounds as Python counts them (negative from the end, open) made concrete."""
    extent = shapes[0][integer(attributes, "axis")]
    start, stop = attributes["start"], attributes["stop"]
    assert start is None or isinstance(start, int)
    assert stop is None or isinstance(stop, int)
    first, last, step = slice(start, stop, integer(attributes, "step")).indices(extent)
    return {**attributes, "start": first, "stop": last, "step": step}


def index_position(shapes: Sequence[Shape], attributes: Attributes) -> Attributes:
    extent, at = shapes[0][integer(attributes, "axis")], integer(attributes, "at")
    if not -extent <= at < extent:
        raise NodeError(f"index {at} is outside axis {attributes['axis']} of {show(shapes[0])}, which has {extent}")
    return {**attributes, "at": at % extent}


def concatenated(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis = integer(attributes, "axis") + len(shapes[0])
    others = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len({len(shape) for shape in shapes}) > 1 or len(others) > 1:
        raise NodeError(f"{', '.join(map(show, shapes))} differ outside axis {axis}")
    result = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    across_rows(result, "concat")
    return result


def stacked(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    if len(set(shapes)) > 1:
        raise NodeError(f"stack wants equal shapes, and these are {', '.join(map(show, shapes))}")
    axis = integer(attributes, "axis") + len(shapes[0]) + 1
    result = (*shapes[0][:axis], len(shapes), *shapes[0][axis:])
    across_rows(result, "stack")
    return result


def given(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """Sources whose shape is an attribute, one a row where ``rows`` is set."""
    shape, rows = attributes["shape"], attributes.get("rows")
    assert isinstance(shape, tuple)
    return shape if rows is None else (integer(attributes, "rows"), *shape)


def counted(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return (integer(attributes, "size"),)


def scalar(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    return ()


def by_rows(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """position: a scalar, or one a row."""
    return () if attributes["rows"] is None else (integer(attributes, "rows"),)


def logit_rows(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """logits: ``vocabulary`` is filled in by the checker, it is the model's and not the author's."""
    vocabulary = integer(attributes, "vocabulary")
    return (*by_rows(shapes, attributes), vocabulary)


def hidden_rows(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    """hidden: its width is the model's, too."""
    width = integer(attributes, "hidden")
    if not width:
        raise NodeError("no hidden states are read out here; use logits")
    return (*by_rows(shapes, attributes), width)
