"""The agents' logic in a client: every turn is a request that sends the whole conversation again.

The conversation is sent as token ids, and answers come as such: what was generated is then found in a server's cache as it is,
whereas text may be cut into other tokens when it comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from benchmarks.calling.loopback import Client
from benchmarks.calling.script import Errand, Task, Tokenizer
from benchmarks.inferlets import dialogue

Turns = list[list[int]]
"""The tokens that an agent wrote, turn by turn."""


class RequestingAgents:
    """Agents whose model is a server's ``/completions``."""

    def __init__(self, server: Client, tools: Client, tokenizer: Tokenizer) -> None:
        self._server = server
        self._tools = tools
        self._tokenizer = tokenizer

    async def run(self, shape: str, task: Task) -> Turns:
        shapes: dict[str, Callable[[Task], Awaitable[Turns]]] = {
            "react": self._react,
            "codeact": self._codeact,
            "swarm": self._swarm,
        }
        return await shapes[shape](task)

    async def _react(self, task: Task) -> Turns:
        async def observe(call: int) -> str:
            return dialogue.observed(await self._tools.post("/search", dialogue.search(call)))

        return await self._alone(task, observe)

    async def _codeact(self, task: Task) -> Turns:
        async def observe(call: int) -> str:
            return dialogue.printed(call, dialogue.run(dialogue.code(call)))

        return await self._alone(task, observe)

    async def _alone(self, task: Task, observe: Callable[[int], Awaitable[str]]) -> Turns:
        conversation, turns = list(task.prompts[0]), []
        for call in range(task.calls):
            turns.append(await self._complete(conversation, task.turn))
            conversation += [*turns[-1], *self._tokenizer.encode(await observe(call))]
        return [*turns, await self._complete(conversation, task.turn)]

    async def _swarm(self, task: Task) -> Turns:
        conversations = [list(prompt) for prompt in task.prompts]
        turns: Turns = []
        for turn in range(task.calls + 1):
            conversation = conversations[turn % len(conversations)]
            if turn:
                conversation += self._tokenizer.encode(dialogue.heard(self._tokenizer.decode(turns[-1])))
            turns.append(await self._complete(conversation, task.turn))
            conversation += turns[-1]
        return turns

    async def call_functions(self, errand: Errand) -> Turns:
        """A turn for each API, after which it is called twice, and one at the end."""
        conversation, turns = errand.prompt, []
        for api in range(len(errand.documents)):
            turns.append(await self._complete(conversation, errand.turn))
            calls = (self._tools.post("/search", dialogue.search(2 * api + second)) for second in range(2))
            answers = "".join(map(dialogue.answered, await asyncio.gather(*calls)))
            conversation += [*turns[-1], *self._tokenizer.encode(answers)]
        return [*turns, await self._complete(conversation, errand.turn)]

    async def _complete(self, conversation: Sequence[int], count: int) -> list[int]:
        return list(await self._server.post("/completions", {"prompt": conversation, "max_tokens": count}))


class Inferlets:
    """Agents that run as programs beside the model: a client sends each one off, and waits for what it returns."""

    def __init__(self, server: Client, tool: str) -> None:
        self._server = server
        self._tool = tool

    async def run(self, shape: str, task: Task) -> Turns:
        told = {"calls": task.calls, "turn": task.turn, "tool": self._tool}
        prompts = (
            {"prompts": task.prompts, "session": f"swarm {task.session}"}
            if shape == "swarm"
            else {"prompt": task.prompts[0]}
        )
        return list(await self._run(shape, told | prompts))

    async def call_functions(self, errand: Errand, key: str = "", early: bool = False, masked: bool = False) -> Turns:
        """With what only a program can do: ``inferlets/functions.py`` says what each is."""
        told = {"own": errand.own, "documents": errand.documents, "turn": errand.turn, "tool": self._tool}
        how = {"first": errand.first, "key": key, "early": early, "masked": masked}
        return list(await self._run("functions", told | how))

    async def export(self, key: str, ids: Sequence[int]) -> None:
        """Puts a text into the cache under a key; without tokens, takes away what is there."""
        await self._run("document", {"key": key, "ids": ids})

    async def _run(self, program: str, input: Mapping[str, Any]) -> Any:
        return await self._server.post("/run", {"program": program, "input": input})
