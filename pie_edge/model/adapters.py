"""Low-rank adapters beside a model's own weights: which matrices take them, and how a trace adds them.

LoRA, arXiv:2106.09685: ``W x + B (A x)``. All adapters of a model lie stacked in two states a matrix, their ranks padded with
zeros to the largest, and each row of a step goes through its own one, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pie_edge.errors import Unsupported
from pie_edge.model.spec import GGUF, SAFETENSORS, Family, Recording, Spec
from pie_edge.program import trace as ops
from pie_edge.program.ops import Program, Value


@dataclass(frozen=True, slots=True)
class Target:
    """A weight that an adapter's module reaches: some of the rows that the module gives, by ``runs`` (first row, count).

    Where ``heads`` isn't 0, the weight has its rows by pairs that the module has half a head apart, as a GGUF's queries and keys.
    """

    weight: str
    runs: tuple[tuple[int, int], ...]
    columns: int
    heads: int

    @property
    def rows(self) -> int:
        return sum(count for _, count in self.runs)


@dataclass(frozen=True)
class Adapters:
    """Those that a model is loaded with. ``matrices`` are f32 bytes by the names of their states: ``lora_a.<weight>``
    [adapters, rank, columns] and ``lora_b.<weight>`` [adapters, rows, rank], B times the scale."""

    names: tuple[str, ...]
    rank: int
    matrices: Mapping[str, memoryview]

    @property
    def nbytes(self) -> int:
        return sum(matrix.nbytes for matrix in self.matrices.values())

    def geometry(self) -> dict[str, Any]:
        """The fields of ``Cache`` that say so."""
        adapted = frozenset(name.partition(".")[2] for name in self.matrices)
        return {"adapters": len(self.names), "adapter_rank": self.rank, "adapted": adapted}

    def check_read(self, program: Program) -> None:
        """A matrix that no op reads would be left out in silence. Raises Unsupported."""
        unread = sorted(set(self.matrices) - set(program.values))
        if unread:
            raise Unsupported(
                f"an adapter changes {unread[0].partition('.')[2]} ({len(unread) // 2} such weights), which takes none in "
                f"{program.name.partition('-')[0]} models of this version; train it without"
            )


def targets(family: Family, spec: Spec) -> dict[str, tuple[Target, ...]]:
    """Of each module, by its name in the model's own code, the weights that its matrix makes."""
    found: dict[str, list[Target]] = {}
    # The names are those of the model's own code, whatever container the weights are in.
    for weight in family.weights(replace(spec, container=SAFETENSORS)):
        layer, _, part = weight.name.partition(".")
        matrix = layer.isdigit() and len(weight.shape) == 2 and weight.source.endswith(".weight")
        if matrix and part not in spec.reordered:
            runs = weight.runs or ((weight.first, weight.shape[0]),)
            target = Target(weight.name, runs, weight.shape[1], _paired_heads(spec, part))
            found.setdefault(weight.source.removesuffix(".weight"), []).append(target)
    return {module: tuple(parts) for module, parts in found.items()}


def _paired_heads(spec: Spec, part: str) -> int:
    """Heads of a weight whose rows the file has in another order than the model's own code."""
    rope: Any = getattr(spec, "rope", None)
    if spec.container != GGUF or rope is None or rope.style != "interleaved":
        return 0
    return {"q": spec.heads, "k": spec.kv_heads}.get(part, 0)


def find_module(name: str, known: Mapping[str, tuple[Target, ...]]) -> tuple[Target, ...] | None:
    """What a file means by ``name``: models that are wrapped in others have longer names, bare ones shorter ones."""
    if name in known:
        return known[name]
    ends = [module for module in known if name.endswith("." + module) or module.endswith("." + name)]
    return known[ends[0]] if len(ends) == 1 else None


def adapt(r: Recording, weight: str, x: Value, y: Value) -> Value:
    """y, and what the adapters of the step's rows add to it where ``x`` met the weight."""
    if "adapters" not in r.step or weight not in r.cache.adapted:
        return y
    a, b = r.adapter_matrices(weight)
    inner = ops.adapter_linear(r.t, x, a, r.step["adapters"])
    return ops.adapter_linear(r.t, inner, b, r.step["adapters"], y)
