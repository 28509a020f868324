"""Op cases of products of many rows, which tensor cores take: ``cases.ALL`` has them once this is imported."""

from __future__ import annotations

from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from tests.backend import cases
from tests.backend.cases import Builder, Case, rows_step


def _many(encoding: Encoding) -> Builder:
    """More rows of x than a tile has, in columns that are no whole stages, by rows of weights that are no whole row groups."""
    columns = 200 if isinstance(encoding, Dense) else 192 if encoding.group == 64 else 224

    def make(case: Case) -> None:
        case.step(*rows_step(70, 72))
        x, t = case.row_state("x", case.normal(72, columns)), case.trace
        weight, bias = case.weight("w", (150, columns), encoding), case.weight("b", (150,), cases.F32)
        case.results = (ops.linear(t, x, weight, bias),)
        case.tolerance = 1e-4

    return make


ENCODINGS = (
    Dense(DType.F16),
    Affine(4, 32, DType.F16, None),
    Affine(4, 64, DType.F16, 8),
    Affine(5, 32, DType.F16, 16),
    Affine(6, 64, DType.F32, None),
    Affine(8, 32, DType.F32, 128),
    Affine(8, 32, DType.F16, None),
    cases.MXFP4,
)
"""Every format that tensor cores take, and every kind of scale."""
MANY = {f"linear {encoding}, 70 rows": _many(encoding) for encoding in ENCODINGS}
for _name, _builder in MANY.items():
    cases.ALL.setdefault(_name, _builder)
