"""The agents' logic in a client: every turn is a request that sends the whole conversation again.

The conversation is sent as token ids, and answers come as such: what was generated is then found in a server's cache as it is,
whereas text may be cut into other tokens when it comes back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from benchmarks.calling.loopback import Client
from benchmarks.calling.script import Task, Tokenizer
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
        conversations, turns = [list(prompt) for prompt in task.prompts], []
        for turn in range(task.calls + 1):
            conversation = conversations[turn % len(conversations)]
            if turn:
                conversation += self._tokenizer.encode(dialogue.heard(self._tokenizer.decode(turns[-1])))
            turns.append(await self._complete(conversation, task.turn))
            conversation += turns[-1]
        return turns

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
        return list(await self._server.post("/run", {"program": shape, "input": told | prompts}))
