"""Agents in a ring, each an inferlet: who has spoken hands over to the next by a message, ``calls`` times in all."""

import asyncio
from pathlib import Path

from inferlet import runtime


async def main(input: dict) -> list:
    prompts, calls = input["prompts"], input["calls"]
    ring = [
        runtime.launch(
            Path("swarm_agent.py"),
            {
                "prompt": prompt,
                "turn": input["turn"],
                "topics": [f"{input['session']}/{number}" for number in range(len(prompts))],
                "own": number,
                "turns": len(range(number, calls + 1, len(prompts))),
                "last": calls % len(prompts) == number,
            },
        )
        for number, prompt in enumerate(prompts[: calls + 1])
    ]
    # A message reaches those who listen already.
    await asyncio.gather(*(agent.receive() for agent in ring))
    ring[0].send("begin")
    spoken = await asyncio.gather(*(agent.result() for agent in ring))
    return [spoken[turn % len(ring)][turn // len(ring)] for turn in range(calls + 1)]
