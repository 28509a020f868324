"""How the vector of a text comes of its hidden states: what a checkpoint says of it, and what a setting says instead.

GGUF files have it as a number, which llama.cpp counts (``pooling_type``); beside safetensors lie the files of
sentence-transformers, a list of modules and the configuration of the one that pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pie_edge.model.spec import GGUF, brief

KINDS = ("mean", "last", "cls")
"""Over all tokens; of the last token; of the first one."""
MODULES = "modules.json"
POOLING = "1_Pooling/config.json"

_NUMBERED = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_NAMED = "--pooling {0} (the setting pooling, or PIE_EDGE_POOLING)"
"""A value of the setting, by all names that it can be given by."""
_STEPS = ("Transformer", "Pooling", "Normalize")
"""Modules that are as the server does it: its vectors have unit length anyway."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """``kind`` is one of ``KINDS``, or empty: then ``reason`` says why there is none, as the end of a sentence, and ``remedy``
    what would change that."""

    kind: str = ""
    reason: str = ""
    remedy: str = f"Serve a checkpoint that declares pooling, or say how with {_NAMED.format('mean, last or cls')}"

    @property
    def refusal(self) -> str:
        """Reason and remedy, for whoever asked for a vector; empty where there are vectors."""
        return "" if self.kind else f"{self.reason}. {self.remedy}"


class CheckpointLike(Protocol):
    """An open checkpoint, as far as this goes."""

    @property
    def container(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


def pooling(checkpoint: CheckpointLike, setting: str = "auto") -> Pooling:
    """What the checkpoint declares, unless the setting is a kind itself or ``none``."""
    if setting == "none":
        return _switched_off(pooling(checkpoint))
    if setting != "auto":
        return Pooling(setting)
    files = checkpoint.metadata
    if checkpoint.container == GGUF:
        number = files.get(f"{checkpoint.architecture}.pooling_type", 0)
        return _known(_NUMBERED.get(number, str(brief(number)))) if number else _UNDECLARED
    more = [step for step in _steps(files.get(MODULES)) if step not in _STEPS]
    if more:
        return Pooling(reason=f"its {MODULES} has a module {more[0]}, which this version hasn't")
    stated = files.get(POOLING)
    if stated is None:
        return _UNDECLARED
    chosen = [kind for mode, kind in _MODES.items() if stated.get(mode) is True]
    return _known(" and ".join(chosen)) if chosen else _UNDECLARED


_UNDECLARED = Pooling(reason="its files declare no pooling, as those of models that continue text don't")


def _switched_off(declared: Pooling) -> Pooling:
    """By the setting, of a checkpoint that has ``declared`` this."""
    reason = "the setting pooling is none"
    if not declared.kind:
        return Pooling(reason=reason)
    remedy = f"Its files declare pooling by {declared.kind}: leave out {_NAMED.format('none')}"
    return Pooling(reason=reason, remedy=remedy)


def _known(kind: str) -> Pooling:
    if kind in KINDS:
        return Pooling(kind)
    return Pooling(reason=f"its files declare pooling by {kind}, and this version pools by {', '.join(KINDS)}")


def _steps(modules: Any) -> list[str]:
    """The kinds of its modules, by the last part of their names."""
    entries = modules if isinstance(modules, list) else []
    types = [entry.get("type") for entry in entries if isinstance(entry, Mapping)]
    return [brief(kind).strip("'").rpartition(".")[2] for kind in types if isinstance(kind, str)]
