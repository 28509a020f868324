"""From slices to one step's inputs: a frozen batch, every field set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.control.scheduler import Slice
from pie_edge.control.space import Space
from pie_edge.program.step import Bucket, StepInputs


@dataclass(frozen=True, slots=True, eq=False)
class Readout:
    """A work whose last rows are in the step: its logits are rows ``first … first + count`` of the logits state."""

    part: Slice
    first: int
    count: int


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

    def add(self, part: Slice) -> Readout | None:
        work, size = part.work, self.page_size
        placement, rows = work.placement, slice(part.first, part.first + part.count)
        readout = None
        if part.last:
            readout = Readout(part, len(self.sample_rows), len(work.rows))
            self.sample_rows += [len(self.token_src) + row - part.first for row in work.rows]
            seed = work.seed
            self.draw_keys += [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF] * len(work.rows)
        places, table = placement.places[rows], part.table
        bits, fresh = placement.seen(part.end, size), [0] * len(table)
        for index, own in part.fresh.items():
            fresh[index] = own
            bits[index] |= own & ~table[index].hidden
        self.token_src += work.tokens[rows] if work.source is None else (-1 - work.source,)
        self.positions += placement.positions[rows]
        self.row_index += places
        self.write_slots += [placement.entries[place // size].page * size + place % size for place in places]
        self.pages += [entry.page for entry in table]
        self.page_bits += bits
        self.fresh_bits += fresh
        self.mask_starts.append(0 if work.mask is None else len(self.mask) + 1)
        if work.mask is not None:
            full = (1 << size) - 1
            self.mask += [seen >> index * size & full for seen in work.mask[rows] for index in range(len(table))]
        self.query_starts.append(len(self.token_src))
        self.page_starts.append(len(self.pages))
        return readout

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
        )


def build(slices: Sequence[Slice], page_size: int) -> Batch:
    """The step that runs these slices, in their order. Each one's pages are its own to write by now."""
    arrays = _Arrays(page_size)
    readouts = [readout for part in slices if (readout := arrays.add(part)) is not None]
    return Batch(tuple(slices), arrays.inputs(), tuple(readouts))


def bucket_for(counts: Bucket, limit: Bucket) -> Bucket:
    """The smallest bucket that holds ``counts``: powers of eight, so that a run meets few of them, up to ``limit``."""

    def grown(count: int, most: int) -> int:
        size = 8
        while size < count:
            size *= 8
        return min(size, most)

    return Bucket(
        grown(counts.rows, limit.rows),
        grown(counts.sequences, limit.sequences),
        grown(counts.sampled, limit.sampled),
        grown(counts.entries, limit.entries),
        grown(counts.mask, max(limit.mask, counts.mask)) if counts.mask else 0,
    )
