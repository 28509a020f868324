"""The answers to one prompt, side by side on the pages that it fills once."""

from __future__ import annotations

import asyncio
import contextlib

import echo
from answer import Answer
from constraint import Constraint
from inferlet import Context, errors, runtime
from prompts import Prompt
from sink import Sink

_MOST_KEPT = 100_000  # tokens; they go in one message


class Choices:
    def __init__(self, prompt: Prompt, sink: Sink) -> None:
        self._prompt = prompt
        self._sink = sink
        self._request = prompt.request
        self._began = False

    async def run(self) -> None:
        request = self._request
        context = await self._filled()
        # The first one draws from the seed itself, so that a single answer is the first of several.
        contexts = [context, *(context.fork() for _ in range(request["choices"] - 1))]
        constraint = Constraint.of(self._prompt)
        answers = [
            Answer(number, one, self._prompt, constraint, self._sink, self.begin) for number, one in enumerate(contexts)
        ]
        await self._all(answers)
        self.begin()
        if request["keep"] is not None:
            await self._keep(context)
        counts = sum(one.generated for one in answers), sum(one.reasoning for one in answers)
        self._sink.add("u", len(self._prompt.tokens), self._cached, *counts)

    def begin(self) -> None:
        """Tells of the prompt, as soon as it has been read."""
        if not self._began:
            self._began = True
            self._cached = min(self._found + runtime.usage().cached, len(self._prompt.tokens))
            self._sink.add("b", len(self._prompt.tokens), self._cached)

    async def _filled(self) -> Context:
        """A context with the prompt in it, on the pages of what it goes on after, if those are there."""
        context, tokens = self._prompt.context(), self._prompt.tokens
        after = None if self._prompt.conversation is None else self._prompt.conversation["after"]
        self._found = 0
        if after is not None and tokens[: len(after["tokens"])] == after["tokens"]:
            self._found = context.resume(after["name"], after["tokens"])
        if self._request["echo"]:
            await self._echo(context)
        context.fill(tokens[len(context.tokens) :])
        return context

    async def _echo(self, context: Context) -> None:
        async for text, logprobs in echo.fill(context, self._prompt, self._request["logprobs"]):
            self.begin()
            for choice in range(self._request["choices"]):
                self._sink.add("p", choice, text, *([] if logprobs is None else [logprobs]))

    async def _all(self, answers: list[Answer]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for answer in answers:
                    group.create_task(answer.run())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _keep(self, context: Context) -> None:
        request = self._request
        if request["choices"] != 1 or request["stop"]:
            raise errors.UsageError("what is kept is one answer, without stop strings")
        # Where there is no room, its tokens are read again.
        with contextlib.suppress(errors.ResourceError):
            await context.share(request["keep"], seconds=request["keep_seconds"])
        if len(context.tokens) <= _MOST_KEPT:
            self._sink.add("k", context.tokens)
