"""States on the device whose first axis is pages, or slots: read, written and duplicated one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pie_edge.backend import Backend, Executable, Ticket
from pie_edge.control.epilogues import words
from pie_edge.control.pages import Copy
from pie_edge.program.ops import Program, Value
from pie_edge.program.trace import copy_program

COPIES = 64
"""Pages, or tokens, that one run of a copy Program duplicates."""

Compile = Callable[[Program], Awaitable[Executable]]


class Store:
    """The device works in order: a read sees what the runs before it have written."""

    def __init__(self, backend: Backend, states: Sequence[Value], buffers: Mapping[str, Any], compile: Compile) -> None:
        self.states = tuple(states)
        """What ``save`` reads of each page, in its order."""
        self._backend = backend
        self._buffers = buffers
        self._sizes = [value.nbytes // value.shape[0] for value in states]
        self._compile = compile
        self._copiers: dict[bool, Executable] = {}

    @property
    def nbytes(self) -> int:
        """Of a page."""
        return sum(self._sizes)

    def save(self, pages: Sequence[int]) -> asyncio.Task[list[bytes]]:
        """Start reading the content of pages, as it is after the runs so far: one piece of bytes a page."""
        spans = [
            (self._buffers[state.name], page * size, size)
            for page in pages
            for state, size in zip(self.states, self._sizes, strict=True)
        ]
        ticket = self._backend.download(spans)
        return asyncio.get_running_loop().create_task(self._join(ticket, len(pages)))

    async def _join(self, ticket: Ticket, count: int) -> list[bytes]:
        parts = list((await self._backend.read(ticket)).values())
        each = len(self.states)
        return [b"".join(parts[index * each : (index + 1) * each]) for index in range(count)]

    def load(self, page: int, content: bytes) -> None:
        """Write what ``save`` read to a page, for the runs that follow."""
        start = 0
        for state, size in zip(self.states, self._sizes, strict=True):
            self._backend.write(self._buffers[state.name], content[start : start + size], page * size)
            start += size

    async def copy(self, copies: Sequence[Copy]) -> None:
        """Duplicate pages, for the runs that follow."""
        await self._copy([(copy.source, copy.target) for copy in copies], tokens=False)

    async def copy_tokens(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Duplicate tokens of KV pages, (source, target) each as page · page size + slot, for the runs that follow."""
        await self._copy(pairs, tokens=True)

    async def _copy(self, pairs: Sequence[tuple[int, int]], *, tokens: bool) -> None:
        if tokens not in self._copiers:
            self._copiers[tokens] = await self._compile(copy_program(self.states, COPIES, slots=tokens))
        for first in range(0, len(pairs), COPIES):
            part = pairs[first : first + COPIES]
            given = {
                "counts": words([len(part)], 1),
                "sources": words([source for source, _ in part], COPIES),
                "targets": words([target for _, target in part], COPIES),
            }
            self._backend.run(self._copiers[tokens], given)
