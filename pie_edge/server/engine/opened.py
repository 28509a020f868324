"""What the engine's process serves: a host with its model, and what a client may know and ask of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pie_edge.config import Settings
from pie_edge.protocol.messages import ModelCard

if TYPE_CHECKING:
    from pie_edge.host import Host
    from pie_edge.runtime import Progress


class Closing(Protocol):
    async def __call__(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Opened:
    """``answers`` are by what is asked: each takes JSON and gives it, in no time worth naming."""

    host: Host
    card: ModelCard
    answers: Mapping[str, Callable[[str], str]]
    close: Closing


class Opener(Protocol):
    async def __call__(self, settings: Settings, progress: Progress) -> Opened: ...


async def open_model(settings: Settings, progress: Progress) -> Opened:
    """The model that the settings name. Raises ModelError or BackendError."""
    from pie_edge.runtime import open_runtime

    runtime = await open_runtime(settings.model, settings, progress=progress)
    facts, host = runtime.engine.facts, runtime.host
    # It holds up every thread: here nobody is served yet.
    await host.prepare()
    card = ModelCard(
        name=facts.name,
        context=runtime.engine.abilities.longest,
        created=_age(settings.model),
        chat=host.chats,
        embeds=bool(facts.pooling),
        description=facts.description,
        backend=runtime.choice.backend,
        device=runtime.choice.named,
        thinks=host.thinks,
        unpooled=facts.unpooled,
        hidden=facts.hidden,
        vocabulary=facts.vocabulary,
        sampling=dict(facts.sampling),
        tools=host.takes_tools,
    )
    return Opened(host, card, _answers(runtime), runtime.close)


def _answers(runtime: Any) -> dict[str, Callable[[str], str]]:
    return {"metrics": lambda _: json.dumps(runtime.metrics())}


def _age(model: str) -> int:
    """When its file was written, in seconds since 1970; 0 where it is none that was named."""
    try:
        return int(Path(model).expanduser().stat().st_mtime)
    except OSError:
        return 0
