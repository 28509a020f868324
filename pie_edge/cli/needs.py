"""What ``pie-edge model show`` tells of a checkpoint before it is loaded: what a backend needs for it, how long contexts get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pie_edge.backend_choice import Choice, choose, open_backend
from pie_edge.cli import interrupts
from pie_edge.cli.progress import Notes
from pie_edge.errors import ModelError
from pie_edge.paths import cache_folder
from pie_edge.program.encodings import DType

if TYPE_CHECKING:
    from pie_edge.backend import Backend
    from pie_edge.config import Settings
    from pie_edge.weights.checkpoint import Checkpoint


def needs(checkpoint: Checkpoint, settings: Settings) -> dict[str, Any]:
    """Facts of a model on the backend of the settings, which is opened and closed again; nothing is loaded. Sizes are bytes,
    contexts tokens. Raises BackendError, ConfigError, or ModelError for a model that this version or the backend can't run."""
    return interrupts.run(_asked(checkpoint, settings, choose(settings.backend, settings.device)))


async def _asked(checkpoint: Checkpoint, settings: Settings, choice: Choice) -> dict[str, Any]:
    notes = Notes()
    backend = await open_backend(
        choice,
        threads=settings.threads,
        memory=settings.memory,
        exact=settings.exact,
        cache_dir=cache_folder(),
        tune=False,
        progress=notes,
    )
    notes.clear()
    try:
        return _facts(checkpoint, backend, settings)
    finally:
        await backend.close()


def _facts(checkpoint: Checkpoint, backend: Backend, settings: Settings) -> dict[str, Any]:
    from pie_edge.control.needs import SLOTS_OF_A_CONTEXT, needs_of
    from pie_edge.control.plan import Model
    from pie_edge.model import registry
    from pie_edge.runtime import device_settings
    from pie_edge.weights.source import weight_sources

    facts = registry.facts(checkpoint, settings.context)
    spec, family = registry.read(facts), registry.family(facts)
    sources = weight_sources(checkpoint.tensors, family.weights(spec), backend.limits.supports)
    encodings = {name: source.target for name, source in sources.items()}
    found = needs_of(Model(spec, family, encodings), backend, device_settings(settings))
    limits = backend.limits
    return {
        "backend": limits.backend,
        "device": limits.device,
        "fits": found.fits,
        "weight_bytes": found.weights,
        "kv_bytes_per_token": {
            "f16": spec.kv_bytes_per_token(DType.F16),
            "f32": spec.kv_bytes_per_token(DType.F32),
            "kept_as": str(found.cache.dtype),
        },
        "state_bytes_per_context": SLOTS_OF_A_CONTEXT * found.slot,
        "state_contexts": found.contexts,
        "pool_bytes": found.pages,
        "pool_tokens": found.context,
        "logits_bytes": found.logits,
        "state_bytes": found.states,
        "working_bytes": found.working,
        "total_bytes": found.total,
        "memory_bytes": found.memory,
        "context_tokens": found.longest(found.context, spec.context),
        "most_context_tokens": found.longest(found.most_context, spec.context),
    }


def told(checkpoint: Checkpoint, settings: Settings, *, named: bool) -> dict[str, Any]:
    """``needs``, or why a model has none. A backend that was ``named`` and can't be used is an error."""
    try:
        return needs(checkpoint, settings)
    except ModelError as error:
        if named:
            raise
        return {"reason": error.message}


def lines(needs: dict[str, Any]) -> list[tuple[str, str]]:
    """For people: labels and what stands behind them."""
    if "reason" in needs:
        return [("needs", needs["reason"])]
    kv, state = needs["kv_bytes_per_token"], needs["state_bytes_per_context"]
    pool = (
        f"{_mib(needs['pool_bytes'])}, {needs['pool_tokens']:,} tokens" if needs["fits"] else _mib(needs["pool_bytes"])
    )
    verdict = "" if needs["fits"] else ": it doesn't fit"
    return [
        ("needs on", f"{needs['backend']}, {needs['device']}"),
        ("weights there", _mib(needs["weight_bytes"])),
        ("KV a token", f"{_kib(kv['f16'])} as f16, {_kib(kv['f32'])} as f32; kept as {kv['kept_as']} here"),
        ("state a context", _kib(state) if state else "none beside KV"),
        ("KV pages", pool),
        ("logits", _mib(needs["logits_bytes"])),
        ("to work with", _mib(needs["working_bytes"] + needs["state_bytes"])),
        ("in all", f"{_mib(needs['total_bytes'])} of {_mib(needs['memory_bytes'])}{verdict}"),
        (
            "largest context",
            f"{needs['context_tokens']:,} tokens; {needs['most_context_tokens']:,} if KV pages got all",
        ),
    ]


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"


def _kib(nbytes: int) -> str:
    return f"{nbytes / 2**10:,.1f} KiB"
