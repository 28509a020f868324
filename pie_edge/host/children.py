"""Inferlets that an inferlet starts."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any
from weakref import ref

from pie_edge.control.usage import Usage
from pie_edge.errors import ResourceError
from pie_edge.host import source
from pie_edge.host.facilities import Launch
from pie_edge.host.table import Table

if TYPE_CHECKING:
    from pie_edge.host.guest import Guest
    from pie_edge.host.instance import Instance

_MOST_HELD = 10_000


class Children:
    """Of one guest. They end with it, unless they are detached."""

    def __init__(self, parent: Guest) -> None:
        self._guest = ref(parent)
        self._held: Table[Instance] = Table(parent.name, "child", _MOST_HELD)
        self._alive: set[Instance] = set()
        self._detached: set[Instance] = set()
        self._launched = 0
        self.usage = Usage()
        """What those that have ended used, and their children."""

    @property
    def _parent(self) -> Guest:
        guest = self._guest()
        assert guest is not None, "its own calls and its end are all that ask for it"
        return guest

    def launch(self, program: tuple[str, str], input: str, options: tuple[Any, ...]) -> int:
        """Raises InferletInvalid for a source that can't be read, ResourceError for more than the limits allow."""
        name, seed, time, memory, detached = options
        self._check_room()
        loaded = self._source(*program)
        if seed is None:
            seed = _derived(self._parent.space.seed, self._launched)
        seconds = None if time is None else time / 1e9
        instance = self._parent.facilities.launch(self._parent, Launch(loaded, name, input, seed, seconds, memory))
        self._launched += 1
        self._alive.add(instance)
        if detached:
            self._detached.add(instance)
        return self._held.add(instance)

    def ended(self, instance: Instance) -> None:
        if instance in self._alive:
            self.usage.add(instance.guest.space.usage)
            self.usage.add(instance.guest.children.usage)
        self._alive.discard(instance)
        self._detached.discard(instance)

    def find(self, number: int) -> Instance:
        return self._held.find(number)

    def cancel(self, number: int) -> None:
        instance = self.find(number)
        # Not from inside of the parent's own turn.
        asyncio.get_running_loop().call_soon(instance.cancel, f"its parent {self._parent.name} cancelled it")

    def drop(self, number: int) -> None:
        self._held.drop(number)

    def close(self) -> None:
        for instance in list(self._alive):
            if instance in self._detached:
                instance.hang_up()
            else:
                instance.cancel(f"its parent {self._parent.name} has ended")
        self._held.clear()

    def _check_room(self) -> None:
        limits = self._parent.limits
        if self._parent.generation >= limits.generations:
            raise ResourceError(
                f"{self._parent.name} is {self._parent.generation} generations deep, and may start no children; "
                "let an ancestor start them"
            )
        if len(self._alive) >= limits.children:
            raise ResourceError(
                f"{self._parent.name} has {len(self._alive)} children alive, the most is {limits.children}; await one's result"
            )
        self._held.check_room()

    def _source(self, kind: str, text: str) -> source.Source:
        own = self._parent.source
        if kind == "text":
            return source.Source("child.py", text, own.folder)
        return own.beside(text, self._parent.limits.source)


def _derived(seed: int, number: int) -> int:
    """What a child's draws derive from, where the parent doesn't say: the same whenever the parent's seed is."""
    return int.from_bytes(hashlib.blake2b(f"child {number} of {seed}".encode(), digest_size=8).digest(), "little")
