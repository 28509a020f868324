"""Where time goes inside of a process: functions wrapped from outside, by name, so that the product carries no clocks."""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One call. Times are seconds of ``time.perf_counter``, which all processes of a machine share."""

    title: str
    thread: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def locate(path: str) -> tuple[Any, str, Any]:
    """``module:Class.function`` → what holds it, its name there, and what is there. Raises AttributeError, ImportError."""
    module, _, names = path.partition(":")
    *parents, name = names.split(".")
    holder = functools.reduce(getattr, parents, importlib.import_module(module))
    getattr(holder, name)
    return holder, name, inspect.getattr_static(holder, name)


class Tracer:
    """Gathers the spans of the functions it wrapped."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock`` may be ``time.thread_time`` where no coroutine is wrapped: what others take of the processor isn't in it."""
        self.spans: list[Span] = []
        self._clock = clock

    def wrap(self, stages: Mapping[str, str]) -> None:
        """``path → title``; the functions stay wrapped for the life of the process."""
        for path, title in stages.items():
            holder, name, found = locate(path)
            if isinstance(found, classmethod):
                setattr(holder, name, classmethod(self._wrapped(found.__func__, title)))
            else:
                setattr(holder, name, self._wrapped(found, title))

    def note(self, title: str, start: float, end: float) -> None:
        self.spans.append(Span(title, threading.current_thread().name, start, end))

    def _wrapped(self, function: Callable[..., Any], title: str) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced_async(*args: Any, **kwargs: Any) -> Any:
                start = self._clock()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self.note(title, start, self._clock())

            return traced_async

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            start = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.note(title, start, self._clock())

        return traced


def own_seconds(spans: Sequence[Span]) -> dict[str, float]:
    """Seconds in each title's functions, without those of wrapped functions that they called on the same thread."""
    found: dict[str, float] = {}
    open_spans: list[Span] = []
    # The outer one of two that start together ends later.
    for span in sorted(spans, key=lambda span: (span.thread, span.start, -span.end)):
        while open_spans and (open_spans[-1].thread != span.thread or open_spans[-1].end <= span.start):
            open_spans.pop()
        if open_spans:
            found[open_spans[-1].title] -= span.seconds
        found[span.title] = found.get(span.title, 0.0) + span.seconds
        open_spans.append(span)
    return found
