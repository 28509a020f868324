"""Agents in a ring, each an inferlet: who has spoken hands over to the next by a message, ``calls`` times in all."""

import asyncio
from pathlib import Path

from inferlet import runtime


async def main(input: dict) -> list:
    prompts, calls = input["prompts"], input["calls"]
    topics = [f"{input['session']}/{number}" for number in range(len(prompts))]
    ring = []
    for number, prompt in enumerate(prompts[: calls + 1]):
        turns = range(number, calls + 1, len(prompts))
        told = {"prompt": prompt, "turn": input["turn"], "topics": topics, "own": number, "turns": len(turns)}
        ring.append(runtime.launch(Path("swarm_agent.py"), {**told, "last": calls in turns}))
    for number, agent in enumerate(ring):
        # A message reaches those who listen already: each hears when the one after it does.
        await agent.receive()
        if calls:
            ring[number - 1].send("your neighbour listens")
    spoken = await asyncio.gather(*(agent.result() for agent in ring))
    return [spoken[turn % len(prompts)][turn // len(prompts)] for turn in range(calls + 1)]
