"""Running inferlets on the model-free engine, and looking at how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pie_edge.errors import PieError
from pie_edge.host import Host, Limits
from tests.host.model_free import Engine, Kinds, Template

T = TypeVar("T")


@dataclass
class Ended:
    """How a program ended: a result or an error, and what it said."""

    result: Any = None
    error: PieError | None = None
    text: str = ""
    log: str = ""

    @property
    def traceback(self) -> str:
        assert self.error is not None, f"it returned {self.result!r}"
        return str(getattr(self.error, "traceback", ""))


@asynccontextmanager
async def hosting(
    engine: Engine | None = None, *, template: bool = True, max_instances: int = 1000, **limits: Any
) -> AsyncIterator[tuple[Host, Engine]]:
    """A host on a model-free engine; at the end nothing may be left of any inferlet."""
    engine = engine or Engine()
    tokenizer: Any = Kinds()
    turns = Template(tokenizer) if template else None
    fake: Any = engine
    host = await Host.open(fake, tokenizer, turns, Limits(**{"time": 20.0, **limits}), max_instances=max_instances)
    try:
        yield host, engine
    finally:
        await host.close()
    assert not host.instances
    assert not engine.spaces
    assert engine.free == engine.pages


async def finish(host: Host, program: Path | str, input: dict[str, Any] | None = None, **options: Any) -> Ended:
    ended = Ended()
    text: list[str] = []
    log: list[str] = []
    try:
        outcome = await host.run(program, input or {}, on_text=text.append, on_log=log.append, **options)
        ended.result = outcome.result
    except PieError as error:
        ended.error = error
    ended.text, ended.log = "".join(text), "".join(log)
    return ended


def run(program: Path | str, input: dict[str, Any] | None = None, *, seed: int = 1, **limits: Any) -> Ended:
    """One program on a host of its own; after it, another one must still work."""

    async def body() -> Ended:
        async with hosting(**limits) as (host, _):
            ended = await finish(host, program, input, seed=seed, name="program")
            after = await finish(host, "async def main(input): return input['x'] + 1", {"x": 1})
            assert after.result == 2, after
            return ended

    return asyncio.run(body())


def together(body: Callable[[Host, Engine], Awaitable[T]], engine: Engine | None = None, **limits: Any) -> T:
    """``body`` on a host, in a loop of its own."""

    async def inside() -> T:
        async with hosting(engine, **limits) as (host, opened):
            return await body(host, opened)

    return asyncio.run(inside())
