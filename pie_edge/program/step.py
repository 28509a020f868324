"""One step's inputs: the same for every family, one packed block of 32-bit words.

A *bucket* fixes the capacities a Program is recorded for; the true counts travel in the block's header and kernels stop
at them. ``StepLayout`` says where each field lies, ``pack`` writes a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from pie_edge.program.encodings import DType

HEADER_WORDS = 4
"""True counts: rows, sequences, sampled, entries."""
LAYER_WORDS = 8
"""Words of an observed row that choose its layers, a bit each."""
SLOT_WORDS = 3
"""Of a sequence's recurrent state: the slots source, home and fold."""
SPAN_WORDS = 3
"""And in tokens: start, replayed and folded."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Capacities: ``rows`` T, ``sequences`` S, ``sampled`` R, ``entries`` N (page-table entries of all sequences).

    ``mask`` M is words of custom masks; ``observed`` O is rows whose attention is observed and ``masses`` W what comes of
    them in all, one a page entry. A Program for a bucket without masks, or without observed rows, has no such inputs.
    ``recurrent`` is 1 where sequences have recurrent state, ``adapters`` where some rows go through an adapter, ``hidden`` where
    the hidden states of some rows are read out.
    """

    rows: int
    sequences: int
    sampled: int
    entries: int
    mask: int = 0
    observed: int = 0
    masses: int = 0
    recurrent: int = 0
    adapters: int = 0
    hidden: int = 0

    def holds(self, other: Bucket) -> bool:
        return all(getattr(self, field.name) >= getattr(other, field.name) for field in fields(self))

    def __str__(self) -> str:
        masked = f"M{self.mask}" if self.mask else ""
        observed = f"O{self.observed}W{self.masses}" if self.observed else ""
        extras = ("Z" if self.recurrent else "") + ("A" if self.adapters else "") + ("H" if self.hidden else "")
        return f"T{self.rows}S{self.sequences}R{self.sampled}N{self.entries}{masked}{observed}{extras}"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    dtype: DType
    offset: int
    """In 32-bit words from the start of the block."""
    shape: tuple[int, ...]

    @property
    def words(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True)
class StepLayout:
    """Where each field of a step lies in its block, for one bucket."""

    bucket: Bucket

    @cached_property
    def fields(self) -> dict[str, Field]:
        b = self.bucket
        shapes: list[tuple[str, DType, tuple[int, ...]]] = [
            ("counts", DType.U32, (HEADER_WORDS,)),
            ("token_src", DType.I32, (b.rows,)),
            ("positions", DType.U32, (b.rows,)),
            ("row_index", DType.U32, (b.rows,)),
            ("write_slots", DType.U32, (b.rows,)),
            ("query_starts", DType.U32, (b.sequences + 1,)),
            ("page_starts", DType.U32, (b.sequences + 1,)),
            ("pages", DType.U32, (b.entries,)),
            ("page_bits", DType.U32, (b.entries,)),
            ("fresh_bits", DType.U32, (b.entries,)),
            ("sample_rows", DType.U32, (b.sampled,)),
            ("draw_keys", DType.U32, (b.sampled, 2)),
        ]
        if b.mask:
            shapes += [("mask_starts", DType.U32, (b.sequences,)), ("mask", DType.U32, (b.mask,))]
        if b.observed:
            shapes += [("mass_rows", DType.U32, (b.observed,)), ("mass_starts", DType.U32, (b.observed + 1,))]
            shapes.append(("mass_layers", DType.U32, (b.observed, LAYER_WORDS)))
        if b.recurrent:
            shapes.append(("state_slots", DType.U32, (b.sequences, SLOT_WORDS)))
            shapes.append(("state_spans", DType.U32, (b.sequences, SPAN_WORDS)))
        if b.adapters:
            shapes.append(("adapters", DType.U32, (b.rows,)))
        if b.hidden:
            shapes.append(("hidden_rows", DType.U32, (b.rows,)))
        laid, offset = {}, 0
        for name, dtype, shape in shapes:
            field = Field(name, dtype, offset, shape)
            laid[name] = field
            offset += field.words
        return laid

    @cached_property
    def words(self) -> int:
        last = next(reversed(self.fields.values()))
        return last.offset + last.words

    @cached_property
    def _fillings(self) -> list[tuple[str, int, int, bool]]:
        """Of each field but the counts: its name, offset and words, and whether its values may be negative."""
        rest = [field for field in self.fields.values() if field.name != "counts"]
        return [(field.name, field.offset, field.words, field.dtype is DType.I32) for field in rest]

    def pack(self, step: StepInputs) -> array[int]:
        """The block's words. Unused tails stay zero: padding rows write page 0 and read nothing."""
        block = array("I", bytes(4 * self.words))
        counts = step.counts
        if counts.mask and not self.bucket.mask:
            raise ValueError(f"the step has {counts.mask} words of masks; bucket {self.bucket} has none")
        if counts.recurrent != self.bucket.recurrent:
            raise ValueError(
                f"the step has {len(step.state_slots)} words of state slots; bucket {self.bucket} doesn't fit"
            )
        if counts.adapters > self.bucket.adapters:
            raise ValueError(f"the step has rows with adapters; bucket {self.bucket} has none")
        if counts.hidden > self.bucket.hidden:
            raise ValueError(f"the step reads hidden states out; bucket {self.bucket} has none")
        if counts.observed > self.bucket.observed or counts.masses > self.bucket.masses:
            raise ValueError(
                f"the step observes {counts.observed} rows over {counts.masses} page entries; bucket {self.bucket} has no room"
            )
        block[:HEADER_WORDS] = array("I", (counts.rows, counts.sequences, counts.sampled, counts.entries))
        for name, offset, room, signed in self._fillings:
            values = getattr(step, name)
            if len(values) > room:
                raise ValueError(
                    f"step field {name} holds {len(values)} words; bucket {self.bucket} has room for {room}"
                )
            words = array("I", array("i", values).tobytes()) if signed else array("I", values)
            block[offset : offset + len(words)] = words
        return block


@dataclass(frozen=True)
class StepInputs:
    """The true values of a step, before they are packed into a bucket's block.

    Rows of one sequence are contiguous. ``draw_keys`` has two words a sampled row: the low and high half of its seed. A
    sequence with a custom mask has ``mask_starts`` 1 + the offset of its words in ``mask``, one for each of its rows and
    page entries in turn, with a bit per token that the row may see; 0 is no mask. The attention of ``mass_rows`` is observed
    in the layers that ``mass_layers`` has bits for, ``LAYER_WORDS`` words a row; ``mass_starts`` says where each row's masses
    begin, one for each page entry of its sequence, and at last where they end.

    Where there is recurrent state, ``state_slots`` has ``SLOT_WORDS`` words a sequence: the slot *source* that its state is
    read from (0: none yet), its *home*, which the state goes to and whose tail is read and written, and *fold*, which the state
    at an earlier place goes to (0: none). ``state_spans`` has ``SPAN_WORDS``: *start*, how many tokens of the context come before
    its first row; *replayed*, how many of them the source's state lacks; and *folded*, how many tokens, those replayed and then
    the step's rows, the state of fold has more than the source's. ``adapters`` has the adapter of each row, counted from 1, or 0
    for none. ``hidden_rows`` are those whose hidden states are read out, in that order; no row comes twice.
    """

    token_src: Sequence[int]
    positions: Sequence[int]
    row_index: Sequence[int]
    write_slots: Sequence[int]
    query_starts: Sequence[int]
    page_starts: Sequence[int]
    pages: Sequence[int]
    page_bits: Sequence[int]
    fresh_bits: Sequence[int]
    sample_rows: Sequence[int]
    draw_keys: Sequence[int]
    mask_starts: Sequence[int] = ()
    mask: Sequence[int] = ()
    mass_rows: Sequence[int] = ()
    mass_starts: Sequence[int] = ()
    mass_layers: Sequence[int] = ()
    state_slots: Sequence[int] = ()
    state_spans: Sequence[int] = ()
    adapters: Sequence[int] = ()
    hidden_rows: Sequence[int] = ()

    @cached_property
    def counts(self) -> Bucket:
        rows, sequences = len(self.token_src), len(self.query_starts) - 1
        masses = self.mass_starts[-1] if self.mass_starts else 0
        observed = len(self.mass_rows)
        sampled, entries, mask = len(self.sample_rows), len(self.pages), len(self.mask)
        recurrent, adapters = int(bool(self.state_slots)), int(bool(self.adapters))
        hidden = int(bool(self.hidden_rows))
        return Bucket(rows, sequences, sampled, entries, mask, observed, masses, recurrent, adapters, hidden)
