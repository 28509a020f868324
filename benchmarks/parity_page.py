"""``docs/parity.md``: one row for each model, backend and mode. A run replaces its own rows and leaves the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from benchmarks.harness import table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "parity.md"
BEGIN, END = "<!-- rows: python -m benchmarks.parity --write -->", "<!-- end of rows -->"
HEADER = (
    "model",
    "backend",
    "mode",
    "greedy tokens matched",
    "first differences",
    "error, oracle",
    "error, reference",
    "tolerance",
    "within",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page, every cell as it is written there."""

    model: str
    backend: str
    mode: str
    matched: str
    differences: str
    oracle_error: str
    reference_error: str
    tolerance: str
    within: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.backend, self.mode


def render(rows: Iterable[Row]) -> str:
    return table(HEADER, [astuple(row) for row in sorted(rows, key=lambda row: row.key)])


def read(page: str) -> list[Row]:
    """The rows on a page. Raises ValueError naming what is wrong with its form."""
    before, begin, rest = page.partition(BEGIN)
    body, end, _ = rest.partition(END)
    if not (before and begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    lines = [tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in body.split("\n") if line]
    if len(lines) < 2 or lines[0] != HEADER:
        raise ValueError(f"the table's header is {lines[:1]}, not {HEADER}")
    wrong = [line for line in lines[2:] if len(line) != len(HEADER)]
    if wrong:
        raise ValueError(f"a row has {len(wrong[0])} cells, not {len(HEADER)}: {wrong[0]}")
    return [Row(*line) for line in lines[2:]]


def merge(page: str, fresh: Iterable[Row]) -> str:
    """The page with these rows in place of those with the same model, backend and mode."""
    rows = {row.key: row for row in read(page)} | {row.key: row for row in fresh}
    return f"{page.partition(BEGIN)[0]}{BEGIN}\n{render(rows.values())}\n{END}{page.partition(END)[2]}"
