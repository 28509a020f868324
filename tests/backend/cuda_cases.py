"""Op cases that only this backend has launches of: products of many rows, which tensor cores take, and several products in one
launch. ``cases.ALL`` has them once this is imported."""

from __future__ import annotations

from pie_edge.backends.cuda.examination import TILED
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from tests.backend import cases, device_cases
from tests.backend.cases import Builder, Case, rows_step


def _many(encoding: Encoding) -> Builder:
    """More rows of x than a tile has, in columns that are no whole stages, by rows of weights that are no whole row groups."""
    dense = isinstance(encoding, Dense)
    columns = 200 if dense else {16: 208, 64: 192}.get(encoding.group, 224)

    def make(case: Case) -> None:
        case.step(*rows_step(70, 72))
        x, t = case.row_state("x", case.normal(72, columns)), case.trace
        weight, bias = case.weight("w", (150, columns), encoding), case.weight("b", (150,), cases.F32)
        case.results = (ops.linear(t, x, weight, bias),)
        # Dense weights are exact, and x is to the last bits of a float32.
        case.tolerance = 4e-6 if dense else 1e-4

    return make


def _gated(rows: int, bucket: int) -> Builder:
    """Two products that become one launch."""

    def make(case: Case) -> None:
        case.step(*rows_step(rows, bucket))
        x, t = case.row_state("x", case.normal(bucket, 384)), case.trace
        gate, up = (case.weight(name, (40, 384), Affine(4, 32, DType.F16, None)) for name in ("gate", "up"))
        case.results = (ops.glu(t, ops.linear(t, x, gate), ops.linear(t, x, up), act="silu"),)
        case.tolerance = 1e-4

    return make


def _group(rows: int, bucket: int) -> Builder:
    """Three products of other sizes that read the same rows."""

    def make(case: Case) -> None:
        case.step(*rows_step(rows, bucket))
        x, t = case.row_state("x", case.normal(bucket, 96)), case.trace
        weights = [
            case.weight(f"w{n}", (outputs, 96), Affine(8, 32, DType.F16, 128)) for n, outputs in enumerate((130, 20, 9))
        ]
        biases = [case.weight(f"b{n}", (outputs,), cases.F32) for n, outputs in enumerate((130, 20, 9))]
        case.results = tuple(ops.linear(t, x, w, b) for w, b in zip(weights, biases, strict=True))
        case.tolerance = 1e-4

    return make


def _linear(rows: int, outputs: int, columns: int, encoding: Encoding) -> Builder:
    def make(case: Case) -> None:
        case.step(*rows_step(rows, rows))
        x = case.row_state("x", case.normal(rows, columns))
        case.results = (ops.linear(case.trace, x, case.weight("w", (outputs, columns), encoding)),)
        case.tolerance = 1e-4

    return make


MORE = (Affine(5, 16, DType.F32, None), Affine(8, 16, DType.F16, None))
"""Codes and scales in groups of 16 that no card is examined with when it is first opened."""
MANY = {f"linear {encoding}, 70 rows": _many(encoding) for encoding in (*TILED, *MORE)}
GATED, GATED_TILE, GROUP_TILE = "a gated unit", "a gated unit of many rows", "three products of many rows"
OWN = {
    GATED: _gated(3, 8),
    GATED_TILE: _gated(37, 40),
    GROUP_TILE: _group(70, 72),
    "three products of a few rows": _group(3, 4),
    # So many row groups that a warp takes several; columns that vectors don't divide, and more than lie in shared memory at once.
    "linear of 8,200 outputs": _linear(2, 8200, 32, Affine(8, 32, DType.F16, 128)),
    "linear of 37 columns": _linear(2, 19, 37, cases.F32),
    # A row that is alone in its tile, and fewer columns than stages have.
    "linear of 65 rows": _linear(65, 24, 64, Affine(4, 32, DType.F16, None)),
    "linear of 1,056 columns": _linear(7, 9, 1056, Dense(DType.BF16)),
}
"""Launches that only this backend has so."""
TILES = (*MANY, GATED_TILE, GROUP_TILE)
"""What tensor cores take in the ways that there are."""
NAMES = (*device_cases.NAMES, *MANY, *OWN)
"""Of all op cases."""
for _name, _builder in (MANY | OWN).items():
    cases.ALL.setdefault(_name, _builder)
