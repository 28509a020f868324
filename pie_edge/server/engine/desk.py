"""Where clients come in: what they may ask depends on how far the engine is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pie_edge.errors import PieError, UsageError
from pie_edge.protocol.messages import State
from pie_edge.server.engine.client import Client, not_ready
from pie_edge.server.engine.opened import Opened
from pie_edge.server.engine.programs import Programs
from pie_edge.server.engine.registry import Registry


class Desk:
    """``stuck`` is called when the device doesn't come back."""

    def __init__(self, secret: str, stuck: Callable[[], None]) -> None:
        self.secret = secret
        self.clients: set[Client] = set()
        self.programs = Programs()
        self.state = State(0, "loading")
        self._stuck = stuck
        self._opened: Opened | None = None
        self._registry: Registry | None = None

    @property
    def registry(self) -> Registry:
        """Raises NotReady while the model loads."""
        if self._registry is None:
            raise not_ready(self.state)
        return self._registry

    def loading(self, done: int, total: int, what: str) -> None:
        """Nothing once it is ready, whatever a device still has to say."""
        if self._opened is None:
            self._tell(State(0, "loading", max(done, 0), max(total, 0), what))

    def ready(self, opened: Opened) -> None:
        self._opened = opened
        self._registry = Registry(opened.host, self.programs, self._stuck)
        self._tell(State(0, "ready", model=opened.card, programs=self.programs.names))

    def failed(self, error: PieError) -> None:
        self._tell(State(0, "failed", code=error.code, message=error.message))

    @property
    def lost(self) -> str:
        """Why no device serves any more; nothing while one does."""
        return "" if self._opened is None else self._opened.host.lost

    def told(self, number: int) -> State:
        return replace(self.state, id=number, programs=self.programs.names)

    def answer(self, what: str, input: str) -> str:
        """Raises NotReady, UsageError for a question that nothing here answers."""
        if self._opened is None:
            raise not_ready(self.state)
        if what not in self._opened.answers:
            raise UsageError(f"nothing answers {what[:80]!r} here; ask for {', '.join(self._opened.answers)}")
        return self._opened.answers[what](input)

    def close(self) -> None:
        for client in list(self.clients):
            client.hang_up()

    async def close_engine(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    def _tell(self, state: State) -> None:
        self.state = state
        for client in list(self.clients):
            client.hear(state)
            # While a model loads the loop may not turn for a second.
            client.flush()
