"""From slices to one step's inputs: a frozen batch, every field set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.control.cells import sources_of
from pie_edge.control.observation import Observation
from pie_edge.control.queue import HostTensor
from pie_edge.control.scheduler import Slice
from pie_edge.control.space import Space
from pie_edge.program.step import Bucket, StepInputs

CHECKED_EVERY = 16
"""Tokens of a context from one check of its logits to the next."""


@dataclass(slots=True, eq=False)
class Readout:
    """A work whose last rows are in the step: its logits are rows ``first … first + count`` of the logits state, its hidden
    states rows ``hidden … hidden + hidden_count`` of theirs, and what it observes begins at ``masses`` of the step's."""

    part: Slice
    first: int
    count: int
    hidden: int
    hidden_count: int
    masses: int

    @property
    def checked(self) -> bool:
        """Whether what it reads, if anything, is checked for being numbers: of prompts, and of every so many tokens after."""
        work = self.part.work
        if not work.rows:
            return False
        return len(work.tokens) > 1 or work.placement.positions[-1] % CHECKED_EVERY == 0

    def observed(self, masses: memoryview) -> tuple[HostTensor, ...]:
        """Its own of the step's masses: [observed rows, pages], if it observes any."""
        observation, pages = self.part.work.observed, len(self.part.table)
        if observation is None:
            return ()
        rows = len(observation.rows)
        return (HostTensor("f32", (rows, pages), masses[self.masses : self.masses + rows * pages]),)


@dataclass(frozen=True, slots=True)
class Batch:
    slices: tuple[Slice, ...]
    inputs: StepInputs
    readouts: tuple[Readout, ...]

    @property
    def singles(self) -> list[Space]:
        """Whose single-token calls it has, one each."""
        return [part.work.space for part in self.slices if part.count == 1 and part.last]


class _Arrays:
    """The step's fields while they grow, slice by slice."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.token_src: list[int] = []
        self.positions: list[int] = []
        self.row_index: list[int] = []
        self.write_slots: list[int] = []
        self.query_starts = [0]
        self.page_starts = [0]
        self.pages: list[int] = []
        self.page_bits: list[int] = []
        self.fresh_bits: list[int] = []
        self.sample_rows: list[int] = []
        self.draw_keys: list[int] = []
        self.mask_starts: list[int] = []
        self.mask: list[int] = []
        self.mass_rows: list[int] = []
        self.mass_starts = [0]
        self.mass_layers: list[int] = []
        self.adapters: list[int] = []
        self.hidden_rows: list[int] = []
        self.state_slots: list[int] = []
        self.state_spans: list[int] = []

    def add(self, part: Slice) -> Readout | None:
        work, size = part.work, self.page_size
        placement, rows = work.placement, slice(part.first, part.first + part.count)
        readout = None
        if part.last:
            logits, hidden = work.logit_rows, work.hidden_rows
            first, start = len(self.sample_rows), len(self.token_src) - part.first
            readout = Readout(part, first, len(logits), len(self.hidden_rows), len(hidden), self.mass_starts[-1])
            if work.observed is not None:
                self._observe(part, work.observed)
            self.sample_rows += [start + row for row in logits]
            self.hidden_rows += [start + row for row in hidden]
            self.draw_keys += work.draw_key * len(logits)
        places, table = placement.places[rows], part.table
        bits, fresh = placement.seen(table, part.end, size), [0] * len(table)
        for index, own in part.fresh.items():
            fresh[index] = own
            bits[index] |= own & ~table[index].hidden
        self.token_src += sources_of(work.tokens[rows])
        self.positions += placement.positions[rows]
        self.adapters += [work.adapter] * part.count
        self.row_index += places
        self.write_slots += [placement.entries[place // size].page * size + place % size for place in places]
        self.pages += [entry.page for entry in table]
        self.page_bits += bits
        self.fresh_bits += fresh
        self.mask_starts.append(0 if work.mask is None else len(self.mask) + 1)
        if work.mask is not None:
            full = (1 << size) - 1
            self.mask += [seen >> index * size & full for seen in work.mask[rows] for index in range(len(table))]
        if part.span is not None:
            self.state_slots += part.span.slots
            self.state_spans += part.span.counts
        self.query_starts.append(len(self.token_src))
        self.page_starts.append(len(self.pages))
        return readout

    def _observe(self, part: Slice, observation: Observation) -> None:
        """The rows that a work observes, before its own rows are there."""
        for row in observation.rows:
            self.mass_rows.append(len(self.token_src) + row - part.first)
            self.mass_starts.append(self.mass_starts[-1] + len(part.table))
            self.mass_layers += observation.words

    def inputs(self) -> StepInputs:
        return StepInputs(
            token_src=self.token_src,
            positions=self.positions,
            row_index=self.row_index,
            write_slots=self.write_slots,
            query_starts=self.query_starts,
            page_starts=self.page_starts,
            pages=self.pages,
            page_bits=self.page_bits,
            fresh_bits=self.fresh_bits,
            sample_rows=self.sample_rows,
            draw_keys=self.draw_keys,
            mask_starts=self.mask_starts if self.mask else (),
            mask=self.mask,
            mass_rows=self.mass_rows,
            mass_starts=self.mass_starts if self.mass_rows else (),
            mass_layers=self.mass_layers,
            adapters=self.adapters if any(self.adapters) else (),
            hidden_rows=self.hidden_rows,
            state_slots=self.state_slots,
            state_spans=self.state_spans,
        )


def build(slices: Sequence[Slice], page_size: int) -> Batch:
    """The step that runs these slices, in their order. Each one's pages, and slots, are its own to write by now."""
    arrays = _Arrays(page_size)
    readouts = [readout for part in slices if (readout := arrays.add(part)) is not None]
    return Batch(tuple(slices), arrays.inputs(), tuple(readouts))


def bucket_for(counts: Bucket, limit: Bucket) -> Bucket:
    """The smallest bucket that holds ``counts``: powers of eight, so that a run meets few of them, up to ``limit``; for what
    follows from the others there is none."""

    def grown(count: int, most: int | None = None) -> int:
        size = 8
        while size < count:
            size *= 8
        return size if most is None else min(size, most)

    return Bucket(
        grown(counts.rows, limit.rows),
        grown(counts.sequences, limit.sequences),
        grown(counts.sampled, limit.sampled),
        grown(counts.entries, limit.entries),
        grown(counts.mask) if counts.mask else 0,
        grown(counts.observed) if counts.observed else 0,
        grown(counts.masses) if counts.observed else 0,
        counts.recurrent,
        counts.adapters,
        counts.hidden,
    )
