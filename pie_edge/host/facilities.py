"""What a host offers its guests beside the model: shared by all of them, and each may be missing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pie_edge.errors import ResourceError, Unsupported
from pie_edge.host.http import HttpClient
from pie_edge.host.topics import Topics

if TYPE_CHECKING:
    from pie_edge.control.handles import Handles
    from pie_edge.control.space import Space
    from pie_edge.host.guest import Guest
    from pie_edge.host.instance import Instance
    from pie_edge.host.source import Source
    from pie_edge.host.store import Store


@dataclass(frozen=True, slots=True)
class Launch:
    """A child as its parent asks for it. ``time`` is seconds, ``memory`` bytes; None is what the parent has."""

    source: Source
    name: str | None
    input: str
    seed: int
    time: float | None
    memory: int | None


class SnapshotShelf(Protocol):
    """Contexts kept by name."""

    def save(self, space: Space, context: int, name: str, length: int, note: str) -> Coroutine[Any, Any, None]:
        """Behind the passes that the context has before it: what is wrong with the call is raised at once."""

    def load(self, space: Space, context: int, name: str) -> Coroutine[Any, Any, str]:
        """The note."""

    def names(self) -> list[str]: ...

    def delete(self, name: str) -> None: ...


def _no_handles(space: Space) -> Handles:
    raise Unsupported(f"{space.name} asks for KV pages of its own, which this engine doesn't give")


def _no_children(parent: Guest, launch: Launch) -> Instance:
    raise Unsupported(f"{parent.name} can't start inferlets: nothing here can carry them")


@dataclass(frozen=True, slots=True)
class Facilities:
    open_handles: Callable[[Space], Handles] = _no_handles
    launch: Callable[[Guest, Launch], Instance] = _no_children
    topics: Topics = field(default_factory=Topics)
    http: HttpClient = field(default_factory=HttpClient)
    store: Store | None = None
    snapshots: SnapshotShelf | None = None

    def the_store(self) -> Store:
        if self.store is None:
            raise ResourceError("this host keeps no store; start it with a data folder")
        return self.store

    def the_snapshots(self) -> SnapshotShelf:
        if self.snapshots is None:
            raise ResourceError("this host keeps no snapshots; start it with a data folder")
        return self.snapshots
