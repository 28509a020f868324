"""The ops, a module for each kind: ``ops(...)`` by MLX's ops, and ``kernel(...)`` by hand for Metal where that is worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from pie_edge.backends.metal.context import Arrays
from pie_edge.backends.metal.device import Mode
from pie_edge.backends.metal.ops import (
    activation,
    adapter_linear,
    add,
    add_rms_norm,
    attention,
    attention_mass,
    clamped_glu,
    combine_experts,
    copy_pages,
    copy_slots,
    embed,
    expert_linear,
    gated_delta,
    gather_rows,
    glu,
    kv_append,
    layer_norm,
    linear,
    mul,
    rms_norm,
    rope,
    rope_append,
    route,
    scale,
    short_conv,
    softcap,
    sort_by_expert,
    store,
    tail_append,
)
from pie_edge.program.ops import Op, Program

Function = Callable[..., Arrays]
"""``(context, op, *inputs, *states that it writes)`` gives the op's outputs."""

MODULES: Mapping[str, ModuleType] = {
    "activation": activation,
    "adapter_linear": adapter_linear,
    "add": add,
    "add_rms_norm": add_rms_norm,
    "attention": attention,
    "attention_mass": attention_mass,
    "clamped_glu": clamped_glu,
    "combine_experts": combine_experts,
    "copy_pages": copy_pages,
    "copy_slots": copy_slots,
    "embed": embed,
    "expert_linear": expert_linear,
    "gated_delta": gated_delta,
    "gather_rows": gather_rows,
    "glu": glu,
    "kv_append": kv_append,
    "layer_norm": layer_norm,
    "linear": linear,
    "mul": mul,
    "rms_norm": rms_norm,
    "rope": rope,
    "rope_append": rope_append,
    "route": route,
    "scale": scale,
    "short_conv": short_conv,
    "softcap": softcap,
    "sort_by_expert": sort_by_expert,
    "store": store,
    "tail_append": tail_append,
}
KINDS = frozenset(MODULES) - {"rope_append"}
"""Those of the op table: the other is made of them."""


def functions(program: Program, mode: Mode) -> Iterator[tuple[Op, Function]]:
    """The Program's ops in order, each with what runs it."""
    for op in program.ops:
        module: Any = MODULES[op.kind]
        by_hand = mode is Mode.KERNELS and hasattr(module, "kernel")
        yield op, module.kernel if by_hand else module.ops
