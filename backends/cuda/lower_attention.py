"""Launches of ``attention``: decodes split over their keys, prefills in tiles of rows, each only where a step has them."""

from __future__ import annotations

from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.shared.attention import FIELDS, MASKS, OBSERVED, has_sinks, masked
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.errors import Unsupported
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op

_FILE, _THREADS = "attention.cu", 128
_QUERIES, _TILE, _WARPS = 8, 16, 4
"""Of a block of ``kernels/attention.cu``, and of a warp of ``attention_tile.cu``, whose blocks have four."""


def attention(c: Lowering, op: Op) -> list[Launch]:
    """Up to three launches: decodes, what joins their splits, and rows of sequences with several."""
    launches, y, step, shape = [], c.place[op.outputs[0]], _step(c, op), _shape(c, op)
    kv_heads, heads = op.integer("kv_heads"), op.integer("heads")
    sharing, width, split = heads // kv_heads, c.width(op.inputs[0]) // heads, c.tuning.split
    if split % op.integer("page_size"):
        raise Unsupported(f"pages of {op.integer('page_size')} tokens don't divide a split of {split}; use 8, 16 or 32")
    step_of = 8 if _halves(c, op) else 4
    if width % step_of or width > 4 * _THREADS:
        raise Unsupported(
            f"{op}: heads of {width} values; the CUDA backend takes multiples of {step_of} to {4 * _THREADS}"
        )
    if c.shape.singles:
        splits: Extent = Count("longest", divisor=split // op.integer("page_size")) if c.shape.splits else 1
        given = arguments(step, shape, y, c.scratch, split)
        grid = (Count("sequences"), kv_heads * -(-sharing // _QUERIES), splits)
        launches.append(Launch(_kernel(c, op, "decode"), given, grid, _THREADS, _shared(width)))
        if c.shape.splits:
            grid = (Count("sequences"), heads, 1)
            launches.append(Launch(_kernel(c, op, "merge"), given, grid, _THREADS))
    if c.shape.several and _is_tiled(c, op, width, sharing):
        kernel = Kernel("attention_tile.cu", "attention_tile", (f"WIDTH={width}",))
        # A warp a tile, four a block; each sequence may have a tile that isn't full.
        blocks = Count("rows", divisor=_WARPS * (_TILE // sharing), more=(c.capacity(op.inputs[7]) - 1) // _WARPS + 2)
        launches.append(Launch(kernel, arguments(step, shape, y), (blocks, kv_heads, 1), 32 * _WARPS))
    elif c.shape.several:
        together = _QUERIES // min(sharing, _QUERIES)
        # Each sequence may have a tile that isn't full.
        tiles = Count("rows", divisor=together, more=c.capacity(op.inputs[7]) - 1)
        grid = (tiles, kv_heads * -(-sharing // _QUERIES), 1)
        given = arguments(step, shape, y)
        launches.append(Launch(_kernel(c, op, "prefill"), given, grid, _THREADS, _shared(width)))
    return launches


def _is_tiled(c: Lowering, op: Op, width: int, sharing: int) -> bool:
    """Whether tensor cores take it: keys and values in halves, heads whose fragments fit a thread's registers."""
    return _halves(c, op) and width in (64, 128) and sharing <= _TILE


def attention_mass(c: Lowering, op: Op) -> list[Launch]:
    """A block for each row that may be observed; those past the true ones leave at once."""
    most = c.capacity("mass_rows")
    observed = packed(*c.at(*OBSERVED), most, op.integer("layer"))
    given = arguments(_step(c, op), _shape(c, op), observed, c.place[op.outputs[0]])
    kernel = Kernel("attention_mass.cu", "attention_mass", (_macro(c, op),))
    return [Launch(kernel, given, (most, 1, 1), _THREADS)]


def _kernel(c: Lowering, op: Op, kind: str) -> Kernel:
    return Kernel(_FILE, f"attention_{kind}", (_macro(c, op),))


def _halves(c: Lowering, op: Op) -> bool:
    return c.program.values[op.inputs[1]].dtype is DType.F16


def _macro(c: Lowering, op: Op) -> str:
    return f"HALVES={int(_halves(c, op))}"


def _shared(width: int) -> int:
    """Bytes: the queries, their scores of a block's keys, and what each thread has found at last."""
    return 4 * (_QUERIES * width + _QUERIES * _THREADS + _THREADS // (width // 4) * width)


def _step(c: Lowering, op: Op) -> bytes:
    """The structure ``Step``."""
    masks = c.at(*MASKS) if masked(op) else (None, None)
    return packed(*c.at(*FIELDS), *masks)


def _shape(c: Lowering, op: Op) -> bytes:
    """The structure ``Attention``."""
    q, named = op.inputs[0], op.named
    values = c.place[named["V"]] if "V" in named else None
    sinks = c.vector(named["sinks"]).region if has_sinks(op) else None
    whole = (op.integer("heads"), op.integer("kv_heads"), c.width(q) // op.integer("heads"), op.integer("page_size"))
    numbers = (op.integer("window"), op.number("scale"), op.number("softcap"))
    return packed(*c.at(q, named["K"]), values, c.place[named["key_positions"]], sinks, *whole, *numbers)
