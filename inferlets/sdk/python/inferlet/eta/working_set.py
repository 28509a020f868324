"""Contexts in the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from inferlet import _check, _loop, model
from inferlet._host import WorkingSetHandle, host
from inferlet.errors import ContextOverflow, InvalidHandle, UsageError

_MOST_SECONDS = 2**33


@dataclass(frozen=True, slots=True)
class Geometry:
    """Tokens ``start`` … ``end`` − 1 of a context are being written; everything before ``end`` is visible."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if type(self.start) is not int or type(self.end) is not int or not 0 <= self.start <= self.end < 2**32:
            raise InvalidHandle(
                f"a geometry goes from {self.start!r} to {self.end!r}; give whole numbers from 0 up, the first one smaller"
            )


class WorkingSet:
    """The KV pages of one context, with room for ``tokens`` tokens. Random numbers over it derive from ``seed``, by default
    the instance's.

    Raises OutOfPages when the pool is exhausted and ContextOverflow beyond the model's limit. Its pages go back when it is
    closed, leaves its ``with`` block, or is no longer referred to.
    """

    def __init__(self, tokens: int, *, seed: int | None = None, _handle: WorkingSetHandle | None = None) -> None:
        if type(tokens) is not int or not 0 <= tokens <= _check.U32:
            raise InvalidHandle(f"a working set of {tokens!r} tokens was asked for; ask for a number from 0 up")
        page_size = model.page_size()
        self._handle: WorkingSetHandle | None = _handle or host().create_working_set(tokens, seed)
        self._capacity = -(-tokens // page_size) * page_size

    @property
    def capacity(self) -> int:
        """The tokens it has room for: whole pages."""
        return self._capacity

    def geometry(self, start: int, end: int) -> Geometry:
        """Where the tokens of a pass go; those that were there, and all after them, are forgotten. Raises ContextOverflow where
        there is no room. A pass that takes back more than ``model.reversible_tokens()`` may fail:
        Irreversible."""
        if 0 <= start == end:
            raise InvalidHandle(
                f"geometry({start}, {end}) writes no token; a pass needs one at least: is the prompt empty?"
            )
        if not 0 <= start < end:
            raise InvalidHandle(f"geometry({start}, {end}) writes no token; start must be 0 or more and before end")
        if end > self._capacity:
            raise ContextOverflow(
                f"geometry({start}, {end}) writes beyond this working set, which has room for {self._capacity} tokens; "
                "make it larger or call reserve"
            )
        return Geometry(start, end)

    def reserve(self, pages: int) -> None:
        """Adds ``pages`` pages of room."""
        self._ready().reserve(_whole(pages, "pages"))
        self._capacity += pages * model.page_size()

    def fork(self, *, seed: int | None = None) -> WorkingSet:
        """A copy that shares its pages until one of the two writes to them. Without a ``seed`` of its own it draws the
        numbers that the original would."""
        return WorkingSet(self._capacity, _handle=self._ready().fork(seed))

    def slice(self, first_page: int, count: int, *, seed: int | None = None) -> WorkingSet:
        """As ``fork``, of ``count`` pages from ``first_page`` on. Its tokens keep the positions they were written at.

        Raises Unsupported for pages that aren't the first ones, where the model has recurrent state."""
        handle = self._ready().slice(_whole(first_page, "first_page"), _whole(count, "count"), seed)
        return WorkingSet(count * model.page_size(), _handle=handle)

    def hide(self, start: int, hidden: Sequence[bool]) -> None:
        """Hides (True) or shows the tokens from ``start`` on, from later passes over this working set alone. Raises Unsupported
        where the model has recurrent state."""
        self._ready().hide(_whole(start, "start"), [bool(one) for one in hidden])

    def add(self, key: str, *, seconds: float | None = None) -> None:
        """Lets every inferlet of this host find it, as it is now, under a key. It stays there when this program has ended: until
        it is removed or, with ``seconds``, for so long, or until its pages are needed.

        Raises InvalidHandle if the key is taken, or a pass still uses the working set: await it first.
        """
        if seconds is not None and not 0 <= seconds < _MOST_SECONDS:
            raise UsageError(f"{seconds!r} seconds were given for {key!r}; give a number from 0 up")
        nanoseconds = None if seconds is None else int(seconds * 1e9)
        self._ready().add(_check.text(key, "WorkingSet.add"), nanoseconds)

    @staticmethod
    def find(key: str) -> WorkingSet | None:
        """A copy of what was added under a key; None where nothing is."""
        handle = host().find_working_set(_check.text(key, "WorkingSet.find"))
        return None if handle is None else WorkingSet(handle.capacity(), _handle=handle)

    @staticmethod
    def remove(key: str) -> bool:
        """Ends it; who has found it keeps it. Whether there was anything."""
        return host().remove_working_set(_check.text(key, "WorkingSet.remove"))

    def discard(self, first_page: int, count: int) -> None:
        """Gives ``count`` pages from ``first_page`` on back, with what they hold. Those after them move down: their tokens have
        other places now, and count as before as what they are. There is room for that many fewer.

        Raises Unsupported for pages that tokens come after, where the model has recurrent state."""
        self._ready().discard(_whole(first_page, "first_page"), _whole(count, "count"))
        self._capacity -= count * model.page_size()

    def close(self) -> None:
        """Gives the pages back. Raises InvalidHandle if that was done already."""
        self._ready().close()
        self._handle = None

    def handle(self) -> WorkingSetHandle:
        """The host's. Raises InvalidHandle once it is closed."""
        if self._handle is None:
            raise InvalidHandle("this working set was closed; make another one")
        return self._handle

    def _ready(self) -> WorkingSetHandle:
        """The handle, once the passes that were submitted before have reached the host."""
        handle = self.handle()
        loop = _loop.running()
        if loop is not None:
            loop.flush()
        return handle

    def __enter__(self) -> WorkingSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self.close()


def _whole(value: int, name: str) -> int:
    return _check.count(value, name)
