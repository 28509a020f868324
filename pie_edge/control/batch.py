"""From slices to one step's inputs: a frozen batch, every field set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.control.pages import slots_of, span_bits
from pie_edge.control.scheduler import Slice
from pie_edge.program.step import Bucket, StepInputs


@dataclass(frozen=True, slots=True)
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


def build(slices: Sequence[Slice], page_size: int) -> Batch:
    """The step that runs these slices, in their order. Each one's pages are its own to write by now."""
    token_src: list[int] = []
    index: list[int] = []
    write_slots: list[int] = []
    query_starts, page_starts = [0], [0]
    pages: list[int] = []
    page_bits: list[int] = []
    fresh_bits: list[int] = []
    sample_rows: list[int] = []
    draw_keys: list[int] = []
    readouts = []
    for part in slices:
        work, call = part.work, part.work.call
        start, end = call.start + part.first, part.end
        entries = -(-end // page_size)
        if part.last:
            readouts.append(Readout(part, len(sample_rows), len(call.rows)))
            sample_rows += [len(token_src) + row - part.first for row in call.rows]
            draw_keys += [work.seed & 0xFFFFFFFF, work.seed >> 32 & 0xFFFFFFFF] * len(call.rows)
        token_src += call.tokens[part.first : part.first + part.count]
        index += range(start, end)
        write_slots += slots_of(work.context.pages, start, end, page_size)
        pages += work.context.pages[:entries]
        page_bits += work.context.visible(end, page_size)
        fresh_bits += [span_bits(entry, start, end, page_size) for entry in range(entries)]
        query_starts.append(len(token_src))
        page_starts.append(len(pages))
    inputs = StepInputs(
        token_src=token_src,
        positions=index,
        row_index=index,
        write_slots=write_slots,
        query_starts=query_starts,
        page_starts=page_starts,
        pages=pages,
        page_bits=page_bits,
        fresh_bits=fresh_bits,
        sample_rows=sample_rows,
        draw_keys=draw_keys,
    )
    return Batch(tuple(slices), inputs, tuple(readouts))


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
    )
