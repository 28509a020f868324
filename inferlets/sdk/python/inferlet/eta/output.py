"""What an epilogue will have computed: to be awaited, or to be embedded before it is known."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn

from inferlet._host import Source, Tensor
from inferlet.errors import EpilogueError, UsageError
from inferlet.eta.trace import Traced

if TYPE_CHECKING:
    from inferlet._loop import Loop


def kept(answer: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """Whoever is cancelled while waiting for an answer, as by ``wait_for``, leaves it to the next one who asks."""
    return answer if answer.done() else asyncio.shield(answer)


class Submitted:
    """A pass on its way, as its outputs know it: nothing at first."""

    ticket: int | None = None
    answer: asyncio.Future[list[Tensor]] | None = None

    def awaited(self, what: str) -> asyncio.Future[list[Tensor]]:
        """Raises UsageError where nobody has submitted it."""
        if self.answer is None:
            raise UsageError(f"this {what}'s pass wasn't submitted yet; submit it to a pipeline first")
        return self.answer


class Observation:
    """What a pass will have attended to; await it, as often as you like: of each observed token, the share of its attention that
    went to each page."""

    def __init__(self, layers: list[int], rows: list[int], run: Submitted) -> None:
        self.layers = layers
        self.rows = rows
        self._run = run

    def __await__(self) -> Generator[Any, None, Any]:
        tensors = yield from kept(self._run.awaited("observation")).__await__()
        # It comes after what the epilogue returned.
        return tensors[-1].nested()


class Output:
    """What an epilogue will have computed; await it, as often as you like, or embed it into a later pass as it is.

    ``out[0]`` or ``out["name"]`` is one of several that the function returned.
    """

    def __init__(self, traced: Traced, run: Submitted, number: int | None = None) -> None:
        self._traced = traced
        self._run = run
        self._number = number
        """Of the one that this is; None is all that was returned."""

    def __await__(self) -> Generator[Any, None, Any]:
        answer = self.check_submitted()
        tensors = yield from kept(answer).__await__()
        if self._number is not None:
            return tensors[self._number].nested()
        # What is observed comes after them.
        return self._traced.pack([tensor.nested() for tensor in tensors[: len(self._traced.lines)]])

    def __getitem__(self, key: int | str) -> Output:
        number = None if self._number is not None else self._traced.output_of(key)
        if number is None:
            raise UsageError(
                f"output[{key!r}] was asked for; this one is {self._form()}. Await it first to look into a result"
            )
        return Output(self._traced, self._run, number)

    def __iter__(self) -> NoReturn:
        raise UsageError("an output was iterated over before it was awaited; write (await output), or output[0]")

    def check_submitted(self) -> asyncio.Future[list[Tensor]]:
        """What it will be known by. Raises UsageError for one of a pass that nobody has submitted."""
        return self._run.awaited("epilogue")

    def source(self, loop: Loop) -> Source | None:
        """What a pass names it by while it is under way; None once it is known, or what became of it."""
        answer, number = self.check_submitted(), self._the_one()
        if answer.done() and not answer.cancelled():
            return None
        if self._run.ticket is None or not loop.is_outstanding(self._run.ticket):
            raise UsageError(
                "this output was awaited, and that was cancelled: its value is lost. Shield what you await"
            )
        return "output", self._run.ticket, number

    def tokens(self) -> list[int]:
        """Once it is known. Raises what its pass failed with, and EpilogueError for anything but whole numbers."""
        number = self._the_one()
        found = self.check_submitted().result()[number]
        if len(found.shape) > 1 or not all(type(one) is int for one in found.elements):
            raise EpilogueError(
                f"{self._traced.lines[number]}: this was embedded, and it isn't one whole number or a row of them, but a tensor "
                f"of {list(found.shape)} that begins with {found.elements[0]!r}"
            )
        return list(found.elements)

    def _the_one(self) -> int:
        number = self._traced.output_of(None) if self._number is None else self._number
        if number is None:
            raise UsageError(f"an output was embedded that is {self._form()}; embed one of them, such as output[0]")
        return number

    def _form(self) -> str:
        if self._number is not None or self._traced.output_of(None) is not None:
            return "a single tensor"
        found = self._traced.result
        return f"a dict of {', '.join(found)}" if isinstance(found, list) else f"{len(self._traced.lines)} tensors"
