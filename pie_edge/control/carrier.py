"""What carries a space: an engine as the space sees it, and who chooses one where there are several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from pie_edge.control.behind import Behind
from pie_edge.control.cells import Token
from pie_edge.control.facts import Abilities
from pie_edge.control.pages import Entry, PagePool, WorkingSet
from pie_edge.control.queue import Work
from pie_edge.control.recurrence import StatePool
from pie_edge.control.shared import Shared

if TYPE_CHECKING:
    from pie_edge.control.space import Request, Space


class TokenCopies(Protocol):
    async def copy_tokens(self, who: str, pairs: Sequence[tuple[Entry, int, Entry, int]]) -> None: ...


class Submitter(Protocol):
    """The engine, as a space needs it."""

    pool: PagePool
    slots: StatePool | None
    """Of recurrent state, where the model has such."""
    behind: Behind
    context_limit: int
    vocabulary: int
    abilities: Abilities
    shared: Shared
    exports: dict[str, list[Entry]]
    """Single pages under names."""

    @property
    def engines(self) -> Sequence[Submitter]:
        """All that serve the model: names of what is shared and exported are taken among them."""

    @property
    def device_name(self) -> str: ...

    @property
    def contents(self) -> TokenCopies: ...

    def enqueue(self, space: Space, request: Request) -> Work: ...

    def changed(self, context: WorkingSet) -> None: ...

    def wake(self) -> None:
        """Something may run now that couldn't before: the host has given a value that a pass takes."""


class HandleTable(Protocol):
    """A space's level 1 objects."""

    def entries(self) -> Iterable[Entry]: ...

    def close(self) -> None: ...


class Router(Protocol):
    """Chooses the engine of a space that has nothing on any."""

    def __call__(self, space: Space, tokens: Sequence[Token], adapter: int, home: Submitter | None) -> None:
        """Moves it to ``home``, or else to where it does best, beginning with these tokens. Raises DeviceLost if none is left."""
