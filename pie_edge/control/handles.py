"""Level 1 of the programming model: single KV pages and embeds by virtual id, as the Pie paper's API has them.

A page handle is a page-table entry of its own, and a pass names the entries it reads and writes token by token. An input
embed only remembers its token and position until a pass consumes it; an output embed holds the next distribution of its
row, which the pass reads out along the way: embed, forward and sample become one batch row.
"""

from __future__ import annotations

import itertools
import json
from asyncio import Future
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pie_edge.control.carrier import Submitter
from pie_edge.control.observation import Observation
from pie_edge.control.pages import Entry
from pie_edge.control.queue import HostTensor, Placement
from pie_edge.control.space import Request, Space
from pie_edge.errors import InvalidHandle, ResourceError

Tensors = tuple[HostTensor, ...]
MAX_EMBEDS = 65536
"""Of one inferlet."""
MAX_EXPORTS = 10000
"""Of all."""


class KvRange(NamedTuple):
    """Tokens ``first … last`` (exclusive) of a page."""

    page: int
    first: int
    last: int


@dataclass(slots=True)
class _Input:
    token: int
    position: int


@dataclass(slots=True)
class _Output:
    """Row ``row`` of what the pass reads out, and of what it observes if it does."""

    results: Future[Tensors]
    row: int
    observed: bool


def distribution_wire(rows: int, k: int) -> str:
    """The epilogue that gives ids and probabilities of the ``k`` likeliest tokens of each row."""
    logits = {"op": "logits", "in": [], "attrs": {"rows": rows}}
    softmax = {"op": "softmax", "in": [0], "attrs": {}}
    best = {"op": "top_k", "in": [1], "attrs": {"k": k}}
    nodes = [node | {"line": "get_next_dist"} for node in (logits, softmax, best)]
    return json.dumps({"v": 1, "nodes": nodes, "outputs": [[2, 1], [2, 0]], "result": "tuple"})


class Handles:
    """The level 1 objects of a space. Ids count up from 1 and are never used again."""

    def __init__(self, space: Space, top_k: int) -> None:
        self._space = space
        self._top_k = top_k
        self._pages: dict[int, Entry] = {}
        self._embeds: dict[int, _Input | _Output | None] = {}
        self._next = 1

    @property
    def _shared(self) -> Submitter:
        """The engine that has the pages: a space may move as long as it has none."""
        return self._space.engine

    # ---- Allocate

    def allocate_pages(self, count: int) -> list[int]:
        total = self._shared.pool.total
        if count < 0 or len(self._pages) + count > total:
            raise ResourceError(
                f"{self._space.name} asked for {count} KV pages and has {len(self._pages)}; there are {total} in all"
            )
        return [self._add_page(Entry()) for _ in range(count)]

    def free_pages(self, pages: Sequence[int]) -> None:
        """Raises InvalidHandle, and frees none, if one isn't held or is named twice."""
        self._check_distinct(pages, "pages")
        entries = [self._page(page) for page in pages]
        for page, entry in zip(pages, entries, strict=True):
            self._shared.pool.retire(entry)
            del self._pages[page]

    def allocate_embeds(self, count: int) -> list[int]:
        if count < 0 or len(self._embeds) + count > MAX_EMBEDS:
            raise ResourceError(
                f"{self._space.name} asked for {count} embeds and has {len(self._embeds)}; the most is {MAX_EMBEDS}"
            )
        return [self._add_embed() for _ in range(count)]

    def free_embeds(self, embeds: Sequence[int]) -> None:
        self._check_distinct(embeds, "embeds")
        for embed in embeds:
            self._embed(embed)
        for embed in embeds:
            del self._embeds[embed]

    def export_pages(self, pages: Sequence[int], name: str) -> None:
        """Share the pages, as they are now, under a name that is free."""
        if any(name in one.exports for one in self._shared.engines):
            raise InvalidHandle(f"{self._space.name} exports pages as {name!r}, which is taken; withdraw it first")
        if len(self._shared.exports) >= MAX_EXPORTS:
            raise ResourceError(
                f"{self._space.name} exports pages as {name!r}, and there are {MAX_EXPORTS} exports; withdraw one first"
            )
        entries = [self._page(page) for page in pages]
        busy = [page for page, entry in zip(pages, entries, strict=True) if entry.users]
        if busy:
            raise InvalidHandle(
                f"{self._space.name} exports KV page {busy[0]}, which a pass under way still names; synchronize its queue first"
            )
        self._space.settle()
        self._shared.exports[name] = [self._shared.pool.share(entry) for entry in entries]

    def import_pages(self, name: str) -> list[int]:
        """Handles of one's own on exported pages; writing one copies it."""
        home = self._exporter(name)
        self._space.settle(home=home)
        return [self._add_page(home.pool.share(entry)) for entry in home.exports[name]]

    def withdraw(self, name: str) -> None:
        """End an export. Those who imported it keep their pages."""
        home = self._exporter(name)
        home.pool.give_back(home.exports.pop(name))

    # ---- InputText, Forward, OutputText

    def embed_text(self, embeds: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> None:
        if not len(embeds) == len(tokens) == len(positions):
            raise InvalidHandle(
                f"{self._space.name} embeds {len(tokens)} tokens at {len(positions)} positions into {len(embeds)} embeds; "
                "the three must be equally many"
            )
        self._space.check_tokens(tuple(tokens))
        self._space.check_positions(positions)
        for embed in embeds:
            self._embed(embed)
        for embed, token, position in zip(embeds, tokens, positions, strict=True):
            self._embeds[embed] = _Input(token, position)

    def forward(
        self,
        queue: Hashable,
        context: Sequence[KvRange],
        inputs: Sequence[int],
        writes: Sequence[KvRange],
        outputs: Sequence[int],
        mask: Sequence[Sequence[bool]] | None = None,
        layers: Sequence[int] | None = None,
        adapter: str | None = None,
    ) -> Future[Tensors]:
        """A pass of the embeds ``inputs`` over the tokens of ``context``; their keys go to ``writes``, one place each, and
        the last of them fill ``outputs``. A ``mask`` says of each input which tokens it may see, those of ``context`` in
        their order and then those of ``writes``. With ``layers``, the outputs' attention in these is observed; ``adapter`` is
        one that the model was loaded with."""
        self._space.settle()
        rows = [self._input(embed) for embed in inputs]
        if not rows:
            raise InvalidHandle(f"{self._space.name} forwards no embed; name at least one input")
        if len(outputs) > len(rows):
            raise InvalidHandle(
                f"{self._space.name} wants {len(outputs)} outputs of {len(rows)} inputs; one each is the most"
            )
        for embed in outputs:
            self._embed(embed)
        placement = self._placement(context, writes, [row.position for row in rows])
        self._check_reach(placement, len(rows))
        wanted = tuple(range(len(rows) - len(outputs), len(rows)))
        k = min(self._top_k, self._space.engine.vocabulary)
        request = Request(
            queue=(self._space, queue),
            tokens=tuple(row.token for row in rows),
            rows=wanted,
            placement=placement,
            context=None,
            epilogue=distribution_wire(len(wanted), k) if wanted else None,
            parameters=(),
            mask=None if mask is None else self._mask(mask, len(rows), [*context, *writes], placement),
            observed=None if layers is None else Observation(tuple(layers), wanted),
            adapter=self._space.adapter_number(adapter),
        )
        results = self._space.engine.enqueue(self._space, request).future
        for row, embed in enumerate(outputs):
            self._embeds[embed] = _Output(results, row, layers is not None)
        return results

    def next_distribution(self, embed: int) -> tuple[Future[Tensors], int]:
        """The results to wait for, of which the first two are ids and probabilities [rows, k], and this embed's row."""
        found = self._output(embed, "distribution")
        return found.results, found.row

    def attention_mass(self, embed: int) -> tuple[Future[Tensors], int]:
        """The results to wait for, of which the last is masses [rows, pages of the pass], and this embed's row."""
        found = self._output(embed, "attention")
        if not found.observed:
            raise InvalidHandle(
                f"{self._space.name} asks for the attention of embed {embed}, and the pass that filled it observed no layer; "
                "ask for it with forward_observed"
            )
        return found.results, found.row

    def mask_page(self, queue: Hashable, page: int, hidden: Sequence[bool]) -> Future[Tensors]:
        """Hide (True) or show each token of a page, for this handle alone and the passes after it in the queue."""
        entry, size = self._page(page), self._shared.pool.page_size
        if len(hidden) != size:
            raise InvalidHandle(
                f"{self._space.name} masks {len(hidden)} tokens of a page of {size}; give one value for each"
            )
        bits = sum(1 << slot for slot, hide in enumerate(hidden) if hide)

        async def hide() -> None:
            entry.hidden = bits

        return self._act(queue, hide, entry)

    def copy_tokens(
        self, queue: Hashable, source: int, target: int, source_first: int, target_first: int, count: int
    ) -> Future[Tensors]:
        """Copy ``count`` tokens from a place of one page to a place of another, after what the queue has before it."""
        origin, goal = self._page(source), self._page(target)
        self._check_range(KvRange(source, source_first, source_first + count))
        self._check_range(KvRange(target, target_first, target_first + count))
        name = self._space.name

        async def copy() -> None:
            missing = [i for i in range(source_first, source_first + count) if not origin.written >> i & 1]
            if missing:
                raise InvalidHandle(f"{name} copies token {missing[0]} of KV page {source}, where nothing was written")
            pairs = [(origin, source_first + i, goal, target_first + i) for i in range(count)]
            await self._shared.contents.copy_tokens(self._space.name, pairs)

        return self._act(queue, copy, origin, goal)

    def synchronize(self, queue: Hashable) -> Future[Tensors]:
        """Done when all that is in the queue by now is."""

        async def nothing() -> None: ...

        return self._act(queue, nothing)

    def _act(self, queue: Hashable, action: Callable[[], Awaitable[None]], *entries: Entry) -> Future[Tensors]:
        self._space.settle()
        placement = Placement(entries, (), ())
        request = Request((self._space, queue), (), (), placement, None, None, (), action=action)
        return self._space.engine.enqueue(self._space, request).future

    def check(self, parts: Iterable[KvRange]) -> None:
        """Raises InvalidHandle for a page that isn't held, or tokens that it hasn't."""
        for part in parts:
            self._check_range(part)

    def entries(self) -> Iterable[Entry]:
        return self._pages.values()

    def close(self) -> None:
        for entry in self._pages.values():
            self._shared.pool.retire(entry)
        self._pages.clear()
        self._embeds.clear()

    # ---- pieces

    def _placement(self, context: Sequence[KvRange], writes: Sequence[KvRange], positions: Sequence[int]) -> Placement:
        size = self._shared.pool.page_size
        table: dict[int, int] = {}
        reach: list[int] = []
        # A pass names hundreds of pages, and this runs for each of them.
        for part in (*context, *writes):
            page, first, last = part
            if page not in self._pages or not 0 <= first <= last <= size:
                self._check_range(part)
            index = table.setdefault(page, len(reach))
            if index == len(reach):
                reach.append(0)
            reach[index] |= (1 << last) - (1 << first)
        places = [table[part.page] * size + slot for part in writes for slot in range(part.first, part.last)]
        if len(places) != len(positions) or len(set(places)) != len(places):
            raise InvalidHandle(
                f"{self._space.name} forwards {len(positions)} embeds into {len(set(places))} places of its KV pages; "
                "give each a place of its own"
            )
        if any(later < earlier for earlier, later in itertools.pairwise(places)):
            # What an input sees of the others is told by their places.
            raise InvalidHandle(
                f"{self._space.name} forwards embeds into places that don't rise; name tokens of a page in order, and the pages "
                "of writes in the order in which the pass first names them"
            )
        return Placement(tuple(self._pages[page] for page in table), tuple(places), tuple(positions), tuple(reach))

    def _check_reach(self, placement: Placement, rows: int) -> None:
        """Positions may repeat, but a pass over more tokens than the model was made for is one beyond its context."""
        size, limit = self._shared.pool.page_size, self._space.engine.context_limit
        assert placement.reach is not None
        named = sum(bits.bit_count() for bits in placement.reach)
        # Whole pages may be named though the last of them reaches a little further.
        self._space.check_context(max(rows, named if named > -(-limit // size) * size else 0))

    def _mask(
        self, mask: Sequence[Sequence[bool]], rows: int, parts: Sequence[KvRange], placement: Placement
    ) -> tuple[int, ...]:
        """Each row's places as the bits of a number."""
        size = self._shared.pool.page_size
        numbers = {id(entry): index for index, entry in enumerate(placement.entries)}
        places = [numbers[id(self._pages[p.page])] * size + slot for p in parts for slot in range(p.first, p.last)]
        wrong = [len(row) for row in mask if len(row) != len(places)]
        if len(mask) != rows or wrong:
            shape = f"{len(mask)} × {wrong[0] if wrong else len(places)}"
            raise InvalidHandle(f"{self._space.name} gave a mask of {shape}; {rows} inputs see {len(places)} tokens")
        # A place that is named twice is seen if either says so.
        return tuple(_bits(place for place, seen in zip(places, row, strict=True) if seen) for row in mask)

    def _check_range(self, part: KvRange) -> None:
        size = self._shared.pool.page_size
        self._page(part.page)
        if not 0 <= part.first <= part.last <= size:
            raise InvalidHandle(f"{self._space.name} names tokens {part.first}…{part.last} of a page of {size}")

    def _check_distinct(self, handles: Sequence[int], what: str) -> None:
        if len(set(handles)) != len(handles):
            raise InvalidHandle(f"{self._space.name} names {what} {list(handles)}, one of them twice")

    def _add_page(self, entry: Entry) -> int:
        handle, self._next = self._next, self._next + 1
        self._pages[handle] = entry
        return handle

    def _add_embed(self) -> int:
        handle, self._next = self._next, self._next + 1
        self._embeds[handle] = None
        return handle

    def _page(self, page: int) -> Entry:
        if page not in self._pages:
            raise InvalidHandle(f"{self._space.name} has no KV page {page}; it was freed or never allocated")
        return self._pages[page]

    def _embed(self, embed: int) -> _Input | _Output | None:
        if embed not in self._embeds:
            raise InvalidHandle(f"{self._space.name} has no embed {embed}; it was freed or never allocated")
        return self._embeds[embed]

    def _input(self, embed: int) -> _Input:
        found = self._embed(embed)
        if not isinstance(found, _Input):
            held = "an output" if isinstance(found, _Output) else "nothing"
            raise InvalidHandle(
                f"{self._space.name} forwards embed {embed}, which holds {held}; embed a token into it first"
            )
        return found

    def _output(self, embed: int, what: str) -> _Output:
        found = self._embed(embed)
        if not isinstance(found, _Output):
            raise InvalidHandle(
                f"{self._space.name} asks for the {what} of embed {embed}, which no pass has filled; name it in outputs"
            )
        return found

    def _exporter(self, name: str) -> Submitter:
        """The engine that has this export."""
        for one in self._shared.engines:
            if name in one.exports:
                return one
        known = ", ".join(sorted(name for one in self._shared.engines for name in one.exports)) or "none"
        raise InvalidHandle(f"{self._space.name} names the export {name!r}; there are {known}")


def _bits(places: Iterable[int]) -> int:
    number = 0
    for place in places:
        number |= 1 << place
    return number
