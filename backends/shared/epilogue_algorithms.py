"""Launches of the nodes that are algorithms of their own: one kernel by hand for each, a workgroup for a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, Protocol, TypeVar

from pie_edge.errors import Unsupported
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Call, Place
from pie_edge.sampling.dialects.planner import TOP_K_SORTED
from pie_edge.sampling.dialects.view import kind

_MAX_GROUPS = 65535
"""In one direction: what every device takes."""
_TYPES = {Element.F32: 0, Element.I32: 1, Element.U32: 2}
_MODES = {"set": 0, "add": 1, "min": 2, "max": 3}
SOFTWARE_TURNS = 30000
"""Mesa's llvmpipe ends an invocation's loops after 65,535 turns together, and says nothing: half of that is left to the
loops over other things."""
_INDICES_A_LAUNCH = 16384
"""Of a scatter, whose invocations look at every index."""


class Facts(Protocol):
    """What of a device decides how many invocations share a row."""

    @property
    def name(self) -> str: ...

    @property
    def software(self) -> bool: ...

    @property
    def shared_memory(self) -> int: ...

    @property
    def max_invocations(self) -> int: ...


L = TypeVar("L")
"""A launch, as the backend has them."""


@dataclass(frozen=True, slots=True)
class Run:
    """A kernel by hand, as a round runs it. ``rows`` are those of a pass, and ``push`` comes after the words that every kernel
    has: the round's first pass, its slots, and the rows."""

    name: str
    operands: tuple[Place, ...]
    results: tuple[Place, ...]
    rows: int
    constants: tuple[int | bool, ...]
    push: tuple[int | float, ...]
    columns: int = 1


@dataclass(frozen=True)
class Site(ABC, Generic[L]):
    """Where a round's launches read and write, and on what device."""

    facts: Facts
    starts: Mapping[str, int]
    """Words from the beginning of the memory that holds the value."""
    first: int
    """The round's first pass."""
    slots: int

    def start(self, place: Place) -> int:
        return self.starts[place.name] + (self.first * place.size if place.whole else 0)

    @abstractmethod
    def launch(self, run: Run) -> L: ...


def grid_of(rows: int, columns: int = 1) -> tuple[int, int, int]:
    """A workgroup for each row, along y and then z."""
    return columns, min(rows, _MAX_GROUPS), -(-rows // _MAX_GROUPS)


def lanes(facts: Facts, extent: int, turns: int) -> int:
    """Invocations that share a row of ``extent`` entries, for which all loops together take ``turns`` turns.

    A software device runs few at a time, but it must not leave too much to each (``SOFTWARE_TURNS``). Raises Unsupported.
    """
    most = 1 << facts.max_invocations.bit_length() - 1
    if not facts.software:
        return min(64 if extent < 4096 else 512, most)
    wanted = 16
    while wanted < most and turns > wanted * SOFTWARE_TURNS:
        wanted *= 2
    if turns > wanted * SOFTWARE_TURNS:
        raise Unsupported(
            f"an epilogue takes {turns} turns for a row of {extent} entries; {facts.name} takes {wanted * SOFTWARE_TURNS}. "
            "Narrow the row first, or use another --backend"
        )
    return wanted


def copies(facts: Facts) -> int:
    """Of a histogram: shared atomics of a software device never meet."""
    return 1 if facts.software else 4


def mass_unit(extent: int) -> float:
    """What a probability is multiplied by: the largest power of two with which a row's sum stays below 2^31."""
    return 2.0 ** min(31 - (extent - 1).bit_length(), 20)


def _threshold(site: Site[L], call: Call, name: str, *push: int | float) -> tuple[L, ...]:
    x, argument = call.operands
    (result,) = call.results
    rows, extent = prod(call.shapes[0][:-1]), call.shapes[0][-1]
    shared = rows // max(argument.size, 1)
    starts = site.start(x), site.start(argument), shared, site.start(result)
    constants = lanes(site.facts, extent, 5 * extent), copies(site.facts)
    return (site.launch(Run(name, call.operands, call.results, rows, constants, (extent, *starts, *push))),)


def _kth_largest(site: Site[L], call: Call) -> tuple[L, ...]:
    return _threshold(site, call, "kth_largest", call.elements[1] is Element.I32)


def _nucleus(site: Site[L], call: Call) -> tuple[L, ...]:
    return _threshold(site, call, "nucleus", mass_unit(call.shapes[0][-1]))


def _top_k(site: Site[L], call: Call) -> tuple[L, ...]:
    (x,), (values, places) = call.operands, call.results
    count = call.op.integer("k")
    if count > TOP_K_SORTED:
        return _sorted(site, call, True, count)
    rows, extent = prod(call.shapes[0][:-1]), call.shapes[0][-1]
    # The key's digits, those of the index, the choice; then each of the chosen is compared with all.
    local = lanes(site.facts, extent, 9 * extent + count * count)
    constants = local, copies(site.facts), _TYPES[call.elements[0]], count
    push = extent, site.start(x), site.start(values), site.start(places)
    return (site.launch(Run("top_k", call.operands, call.results, rows, constants, push)),)


def _sort(site: Site[L], call: Call) -> tuple[L, ...]:
    return _sorted(site, call, bool(call.op.attribute("descending")), call.shapes[0][-1])


def _sorted(site: Site[L], call: Call, falling: bool, kept: int) -> tuple[L, ...]:
    """A launch for each digit. Indices go back and forth between two stretches of the scratch, and at last to the result."""
    (x,), (values, places) = call.operands, call.results
    rows, extent = prod(call.shapes[0][:-1]), call.shapes[0][-1]
    local, bits = _digits(site.facts, extent)
    count = -(-32 // bits)
    begin = site.start(call.scratch)
    stretches = begin, begin + site.slots * rows * extent
    launches = []
    for number in range(count):
        last = number == count - 1
        source, target = stretches[(number + 1) % 2], stretches[number % 2]
        if last:
            target = site.start(places)
        constants = (local, _TYPES[call.elements[0]], bits, falling, number == 0, last)
        push = (extent, site.start(x), source, target, site.start(values), kept, number * bits)
        results = (places if last else call.scratch, values)
        launches.append(site.launch(Run("sort", (x, call.scratch), results, rows, constants, push)))
    return tuple(launches)


def _digits(facts: Facts, extent: int) -> tuple[int, int]:
    """Invocations and bits of a digit, for which each has counters in shared memory: the fewer the one, the more the
    other."""
    local = lanes(facts, extent, 2 * extent)
    local = local if facts.software else min(128, local)
    words = facts.shared_memory // 4 - local
    return local, max(1, min(8, (words // local).bit_length() - 1))


def _cumsum(site: Site[L], call: Call) -> tuple[L, ...]:
    (x,), (result,) = call.operands, call.results
    shape, axis = call.shapes[0], call.op.integer("axis")
    extent, stride = shape[axis], prod(shape[len(shape) + axis + 1 :])
    constants = lanes(site.facts, extent, 2 * extent), call.elements[0] is Element.F32
    push = extent, site.start(x), site.start(result), stride
    return (site.launch(Run("cumsum", call.operands, call.results, prod(shape) // extent, constants, push)),)


def _scatter(site: Site[L], call: Call) -> tuple[L, ...]:
    x, indices, updates = call.operands
    (result,) = call.results
    rows, extent, count = prod(call.shapes[0][:-1]), call.shapes[0][-1], call.shapes[1][-1]
    local = lanes(site.facts, extent, extent)
    share = indices.size // updates.size
    starts = site.start(x), site.start(indices), site.start(updates), site.start(result)
    launches = []
    for begin in range(0, count, _INDICES_A_LAUNCH):
        constants = local, _TYPES[call.elements[0]], _MODES[str(call.op.attribute("mode"))], begin == 0
        push = extent, *starts, count, begin, min(begin + _INDICES_A_LAUNCH, count), share
        launches.append(site.launch(Run("scatter", call.operands, call.results, rows, constants, push)))
    return tuple(launches)


def _pack_bits(site: Site[L], call: Call) -> tuple[L, ...]:
    (x,), (result,) = call.operands, call.results
    rows, extent = prod(call.shapes[0][:-1]), call.shapes[0][-1]
    push = extent, site.start(x), site.start(result)
    columns = min(-(-extent // 2048), 1024)
    return (site.launch(Run("pack_bits", call.operands, call.results, rows, (64,), push, columns)),)


ALGORITHMS: Mapping[str, Callable[[Site[Any], Call], tuple[Any, ...]]] = {
    "kth_largest": _kth_largest,
    "nucleus": _nucleus,
    "top_k": _top_k,
    "sort": _sort,
    "cumsum": _cumsum,
    "scatter": _scatter,
    "pack_bits": _pack_bits,
}


def launches(site: Site[L], call: Call) -> tuple[L, ...]:
    return ALGORITHMS[kind(call.op)](site, call)
