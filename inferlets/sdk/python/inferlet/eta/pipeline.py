"""Passes in order."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from inferlet import _loop
from inferlet.errors import InvalidHandle, UsageError
from inferlet.eta.forward import ForwardPass


class Pipeline:
    """An ordering domain: what is submitted to it runs in that order. A context manager, or ``close`` it yourself."""

    def __init__(self) -> None:
        self._open = True
        self._failed: BaseException | None = None

    def submit(self, step: ForwardPass) -> None:
        """Sends the pass on its way; await its epilogue for what it computes.

        Raises what an earlier pass without an epilogue failed with, since nobody can have awaited that.
        """
        if not self._open:
            raise InvalidHandle("this pipeline was closed; make another one")
        self._raise_failure()
        loop = _loop.running()
        if loop is None:
            raise UsageError("a pass can only be submitted from `async def main`, or from what it calls")
        answer = step.launch(loop)
        if answer is not None:
            answer.add_done_callback(self._note)

    def close(self) -> None:
        """No more passes; those on their way go on. Raises InvalidHandle if it was closed before."""
        if not self._open:
            raise InvalidHandle("this pipeline was closed before")
        self._open = False
        self._raise_failure()

    def _note(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and self._failed is None:
            self._failed = answer.exception()

    def _raise_failure(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._open:
            self._open = False
            if error is None:
                self._raise_failure()
