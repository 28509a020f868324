"""Nodes that are algorithms of their own, by MLX's ops. Values are words, as they lie in memory, a row of passes' entries each.

Order goes by keys: whole numbers that rise as the values do, made so that no two entries of a row are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlx.core as mx

from pie_edge.backends.metal.ops.ordered import falling, order
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Call
from pie_edge.sampling.dialects.view import kind

Words = mx.array
_TYPES = {Element.F32: mx.float32, Element.I32: mx.int32, Element.U32: mx.uint32, Element.BOOL: mx.uint32}
_WHOLE = float(1 << 31)
"""What a weight of 1 counts in sums that have to be exact."""
_LOW = 0xFFFFFFFF


def run(call: Call, passes: int, operands: tuple[Words, ...]) -> tuple[Words, ...]:
    """Its results, of so many passes."""
    given = [
        mx.view(words, _TYPES[element]).reshape(passes, *shape)
        for words, element, shape in zip(operands, call.elements, call.shapes, strict=False)
    ]
    found = ALGORITHMS[kind(call.op)](call, *given)
    return tuple(mx.view(result, mx.uint32).reshape(-1) for result in found)


def _keys(x: mx.array, falls: bool) -> mx.array:
    """u32 keys in the order of x, or in the other one."""
    if x.dtype == mx.float32:
        keys = falling(x)
        return keys if falls else ~keys
    words = mx.view(x, mx.uint32)
    rising = words ^ 0x80000000 if x.dtype == mx.int32 else words
    return ~rising if falls else rising


def _sorted(x: mx.array, falls: bool, count: int) -> tuple[mx.array, mx.array]:
    places = order(_keys(x, falls))[..., :count]
    return mx.take_along_axis(x, places, axis=-1), places


def _sort(call: Call, x: mx.array) -> tuple[mx.array, ...]:
    return _sorted(x, bool(call.op.attribute("descending")), x.shape[-1])


def _top_k(call: Call, x: mx.array) -> tuple[mx.array, ...]:
    return _sorted(x, True, call.op.integer("k"))


def _spread(argument: mx.array, x: mx.array) -> mx.array:
    """One a pass or one a row, as one a row."""
    lead = x.shape[:-1]
    return mx.broadcast_to(argument.reshape(*argument.shape, *(1,) * (len(lead) - argument.ndim)), lead)


def _kth_largest(call: Call, x: mx.array, k: mx.array) -> tuple[mx.array, ...]:
    count = mx.clip(_spread(k, x), 1, x.shape[-1]).astype(mx.uint32)
    values, _ = _sorted(x, True, x.shape[-1])
    return (mx.take_along_axis(values, (count - 1)[..., None], axis=-1)[..., 0],)


def _nucleus(call: Call, x: mx.array, p: mx.array) -> tuple[mx.array, ...]:
    share, (values, _) = _spread(p, x), _sorted(x, True, x.shape[-1])
    best, least = values[..., 0], values[..., -1]
    masses = (mx.exp(values - best[..., None]) * _WHOLE).astype(mx.uint64)
    sums = mx.cumsum(masses, axis=-1)
    parts = (mx.clip(share, 0, 1 - 2**-24) * 2.0**32).astype(mx.uint64)
    total = sums[..., -1]
    # A share of it rounded down, but not nothing: neither of the two products is too long.
    wanted = mx.maximum((total >> 32) * parts + (((total & _LOW) * parts) >> 32), 1)
    place = (sums < wanted[..., None]).sum(axis=-1).astype(mx.uint32)
    found = mx.take_along_axis(values, mx.minimum(place, x.shape[-1] - 1)[..., None], axis=-1)[..., 0]
    found = mx.where(mx.isfinite(best), found, best)
    return (mx.where(share < 1, found, least),)


def _cumsum(call: Call, x: mx.array) -> tuple[mx.array, ...]:
    return (mx.cumsum(x, axis=call.op.integer("axis")),)


def _scatter(call: Call, x: mx.array, indices: mx.array, updates: mx.array) -> tuple[mx.array, ...]:
    """Indices out of range go to one more entry of each row, which is left out at the end."""
    extent, count = x.shape[-1], indices.shape[-1]
    rows = x.reshape(-1, extent)
    places = indices.reshape(-1, count)
    inside = (places >= 0) & (places < extent) if places.dtype == mx.int32 else places < extent
    places = mx.where(inside, mx.view(places, mx.uint32), extent)
    lead = mx.broadcast_to(updates.reshape(*updates.shape, *(1,) * (indices.ndim - updates.ndim)), indices.shape)
    new = lead.reshape(-1, count)
    numbers = (mx.arange(rows.shape[0], dtype=mx.uint32) * (extent + 1))[:, None] + places
    room = mx.concatenate([rows, mx.zeros((rows.shape[0], 1), x.dtype)], axis=1).reshape(-1)
    changed = _CHANGES[str(call.op.attribute("mode"))](room, numbers.reshape(-1), new.reshape(-1), count)
    return (changed.reshape(-1, extent + 1)[:, :extent],)


def _set(room: mx.array, places: mx.array, new: mx.array, count: int) -> mx.array:
    """The last one of those that go to the same place, in whatever order a device writes them."""
    turns = mx.arange(new.size, dtype=mx.uint32) % count + 1
    latest = mx.zeros(room.shape, mx.uint32).at[places].maximum(turns)
    written = mx.take(latest, places) == turns
    # Whoever isn't the last one writes past the end.
    spare = mx.concatenate([room, mx.zeros((1,), room.dtype)])
    spare[mx.where(written, places, room.size)] = new
    return spare[:-1]


_CHANGES: Mapping[str, Callable[[mx.array, mx.array, mx.array, int], mx.array]] = {
    "set": _set,
    "add": lambda room, places, new, count: room.at[places].add(new),
    "min": lambda room, places, new, count: room.at[places].minimum(new),
    "max": lambda room, places, new, count: room.at[places].maximum(new),
}


def _pack_bits(call: Call, x: mx.array) -> tuple[mx.array, ...]:
    rows = x.reshape(-1, x.shape[-1]) != 0
    missing = -rows.shape[1] % 32
    bits = mx.pad(rows.astype(mx.uint32), [(0, 0), (0, missing)]).reshape(rows.shape[0], -1, 32)
    return ((bits << mx.arange(32, dtype=mx.uint32)).sum(axis=-1).astype(mx.uint32),)


ALGORITHMS: Mapping[str, Callable[..., tuple[mx.array, ...]]] = {
    "sort": _sort,
    "top_k": _top_k,
    "kth_largest": _kth_largest,
    "nucleus": _nucleus,
    "cumsum": _cumsum,
    "scatter": _scatter,
    "pack_bits": _pack_bits,
}
