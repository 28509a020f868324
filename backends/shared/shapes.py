"""What of a step decides which kernels it runs, and which values have as many true rows as it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pie_edge.program.ops import Program, Role

HEADER = ("rows", "sequences", "sampled", "entries")
"""True counts, as they lie in a step's header."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What of a step decides which kernels run for it; its exact counts are in its block."""

    rows: int
    """Tokens that an invocation of ``linear`` computes."""
    sampled: int
    """The same for the rows that are read out."""
    singles: bool
    """Some sequence has one row: a decode."""
    several: bool
    """Some sequence has more."""
    splits: bool
    """Some sequence is longer than a split, in a step with decodes: others aren't split."""


def step_shape(counts: Mapping[str, int], tokens: Callable[[int], int], page_size: int, split: int) -> StepShape:
    """``tokens`` says how many an invocation of ``linear`` computes in a step of so many rows, ``split`` how many keys of a
    sequence are attended to at once."""
    rows, sequences = counts.get("rows", 1), counts.get("sequences", 1)
    singles = rows == sequences or sequences > 1
    return StepShape(
        rows=tokens(max(rows, 1)),
        sampled=tokens(max(counts.get("sampled", 1), 1)),
        singles=singles,
        several=rows > sequences,
        splits=singles and counts.get("longest", 0) * page_size > split,
    )


def likely_counts(program: Program) -> tuple[Mapping[str, int], ...]:
    """One token of one sequence, and a prefill of all rows: what a Program is made ready for when it is compiled."""
    tokens = program.values.get("token_src")
    most = 1 if tokens is None else tokens.shape[0]
    return tuple({"rows": rows, "sampled": 1, "sequences": 1, "longest": 0} for rows in dict.fromkeys((1, most)))


def page_size(program: Program) -> int:
    """Tokens of a page, 0 for a Program without attention."""
    return next((op.integer("page_size") for op in program.ops if op.kind == "attention"), 0)


def counted_rows(program: Program) -> dict[str, str]:
    """Values whose true rows are counted, and by which count of the step's header."""
    if "token_src" not in program.values:
        return {}
    rows = program.values["token_src"].shape[0]
    # A state that an op takes as its operand has the step's rows if it has as many.
    found = {v.name: "rows" for v in program.by_role(Role.STATE) if v.shape[0] == rows}
    found |= dict.fromkeys(("token_src", "positions", "row_index", "write_slots", "hidden_rows"), "rows")
    found["sample_rows"] = "sampled"
    for op in program.ops:
        source = op.inputs[1] if op.kind in ("embed", "gather_rows") else op.inputs[0]
        if source in found and op.kind != "attention_mass":
            found |= dict.fromkeys(op.outputs, found[source])
    return found
