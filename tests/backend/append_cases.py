"""Op cases of what a layer does before it attends, which devices do in one launch: queries and keys turned, keys and values
appended."""

from __future__ import annotations

import numpy as np

from pie_edge.program import trace as ops
from tests.backend.cases import Builder, Case, rows_step

PAGES, PAGE = 4, 8


def _append(heads: int, kv_heads: int, width: int, rotary: int, style: str) -> Builder:
    def make(case: Case) -> None:
        fields = case.step(*rows_step(5, 8))
        t, rows = case.trace, fields["token_src"].shape[0]
        q, k, v = (
            case.row_state(name, case.normal(rows, count * width))
            for name, count in (("q", heads), ("new_k", kv_heads), ("new_v", kv_heads))
        )
        cache = (
            case.state("k", case.normal(PAGES, kv_heads, width // 4, PAGE, 4)),
            case.state("v", case.normal(PAGES, kv_heads, PAGE, width)),
            case.state("key_positions", np.zeros((PAGES, PAGE), np.uint32)),
        )
        turned, new = (
            ops.rope(t, x, fields["positions"], heads=count, rotary=rotary, base=1e4, style=style, magnitude=1.25)
            for x, count in ((q, heads), (k, kv_heads))
        )
        ops.kv_append(t, new, v, fields, cache, heads=kv_heads)
        case.results, case.written, case.tolerance = (turned,), ("k", "v", "key_positions"), 2e-5

    return make


ALL: dict[str, Builder] = {
    "append neox": _append(9, 3, 64, 64, "neox"),
    "append interleaved": _append(4, 2, 64, 64, "interleaved"),
    "append neox in part": _append(2, 2, 24, 12, "neox"),
    "append interleaved in part": _append(4, 1, 24, 16, "interleaved"),
}

ODD: dict[str, Builder] = {"append neox, a head wider than a group of threads": _append(2, 1, 2080, 64, "neox")}
