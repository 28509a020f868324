"""What the WIT world has beside the model."""

from __future__ import annotations

from wit_world.imports import children, messaging, snapshots, store

from inferlet import _check
from inferlet._guard import record
from inferlet._wit_errors import checked

_PROGRAMS = {"text": children.Program_Text, "path": children.Program_Path}


class _Subscription:
    def __init__(self, topic: str) -> None:
        self._handle = checked(messaging.Subscription.create)(topic)
        self.id = self._handle.id()

    def close(self) -> None:
        self._handle.__exit__(None, None, None)


class _Child:
    def __init__(self, handle: children.Child) -> None:
        self._handle = handle
        self.id = handle.id()
        self.instance_id = handle.instance_id
        self.send = checked(handle.send)
        self.cancel = handle.cancel


class Outside:
    broadcast = staticmethod(checked(messaging.broadcast))
    subscribe = _Subscription
    store_get = staticmethod(checked(store.get))
    store_set = staticmethod(checked(store.set))
    store_delete = staticmethod(checked(store.delete))
    store_exists = staticmethod(checked(store.exists))
    store_keys = staticmethod(checked(store.list_keys))
    list_snapshots = staticmethod(checked(snapshots.all))
    delete_snapshot = staticmethod(checked(snapshots.delete))

    def launch(
        self,
        kind: str,
        program: str,
        input: str,
        name: str | None,
        seed: int | None,
        time: int | None,
        memory: int | None,
        detached: bool,
    ) -> _Child:
        options = record(children.Options, name, seed, time, memory, detached)
        return _Child(checked(children.Child.launch)(_PROGRAMS[kind](_check.text(program, "launch")), input, options))
