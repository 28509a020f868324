"""Long texts become tokens on a thread of their own: meanwhile the others have their turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pie_edge.errors import InferletFailed, InferletTimeout, TemplateError, TokenizerError
from pie_edge.host import Host, Limits
from tests.host.model_free import Engine, Kinds, Template

LONG = 20_000


class Waiting(Kinds):
    """Takes as long as it is not released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.refusal: Exception | None = None

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        if len(text) >= LONG and not self.released.wait(10):
            raise AssertionError("nobody had a turn while a text was encoded")
        if self.refusal is not None:
            raise self.refusal
        return super().encode(text, special=special)


def on_host(body: Callable[[Host, Waiting], Awaitable[None]]) -> None:
    async def opened() -> None:
        tokenizer, engine = Waiting(), Engine()
        fake: Any = engine
        model: Any = tokenizer
        host = await Host.open(fake, model, Template(tokenizer), Limits(time=20))
        try:
            await body(host, tokenizer)
        finally:
            tokenizer.released.set()
            await host.close()
        assert not host.instances
        assert not engine.spaces

    asyncio.run(opened())


def program(call: str) -> str:
    return f"from inferlet import chat, model\nasync def main(input): return len({call})"


@pytest.mark.parametrize("call", [f"model.encode('x' * {LONG})", f"chat.user('x' * {LONG})"])
def test_others_run_while_a_long_text_is_encoded(call: str) -> None:
    async def body(host: Host, tokenizer: Waiting) -> None:
        long = asyncio.create_task(host.run(program(call), {}))
        await asyncio.sleep(0)
        await host.run("async def main(input): print('my turn')", {}, on_text=lambda text: tokenizer.released.set())
        assert (await long).result >= LONG

    on_host(body)


def test_what_is_refused_on_the_thread_is_an_exception_at_the_author_s_line() -> None:
    async def body(host: Host, tokenizer: Waiting) -> None:
        tokenizer.released.set()
        for refusal, cause in (
            (TokenizerError("no such text"), "tokenizer"),
            (TemplateError("no such turn"), "template"),
        ):
            tokenizer.refusal = refusal
            with pytest.raises(InferletFailed, match="no such t") as ended:
                await host.run(program(f"model.encode('x' * {LONG})"), {})
            assert ended.value.cause == cause
            assert "line 2, in main" in ended.value.traceback

    on_host(body)


def test_an_inferlet_ends_while_its_text_is_encoded() -> None:
    async def body(host: Host, tokenizer: Waiting) -> None:
        with pytest.raises(InferletTimeout):
            await host.run(program(f"model.encode('x' * {LONG})"), {}, limits=Limits(time=0.2))
        assert not host.instances
        tokenizer.released.set()
        assert (await host.run(program("model.encode('x')"), {})).result == 1

    on_host(body)


def test_more_than_a_message_is_refused_whoever_encodes_it() -> None:
    async def body(host: Host, tokenizer: Waiting) -> None:
        for call in ("model.encode('x' * (2**20 + 1))", "chat.system('x' * (2**20 + 1))"):
            with pytest.raises(InferletFailed, match=r"encodes 1,048,577 characters at once.*or encode it in parts"):
                await host.run(program(call), {})

    on_host(body)
