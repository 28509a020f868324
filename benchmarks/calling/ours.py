"""The process of our runtime, behind two paths: ``/run`` starts an inferlet, ``/completions`` is what a completions API would be,
one inferlet for each request. Equal beginnings are shared between all of them, as always.

This is no server of the product's: nothing but what a request costs is in its way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pie_edge
from benchmarks.calling.loopback import Handler, serving
from benchmarks.sides.inferlet import PROGRAM
from benchmarks.worker import resident
from pie_edge.config import Settings
from pie_edge.control.usage import Usage
from pie_edge.host import Host
from pie_edge.runtime import open_runtime

PROGRAMS = PROGRAM.parent


class Endpoint:
    """Inferlets over HTTP. ``used`` is what all of them have used so far."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._limits = replace(host.limits, http=("*",))
        self.used = Usage()

    @property
    def handlers(self) -> dict[str, Handler]:
        return {"/run": self._run, "/completions": self._complete, "/usage": self._usage}

    async def _run(self, asked: dict[str, Any]) -> Any:
        return await self._result(PROGRAMS / f"{asked['program']}.py", asked["input"])

    async def _complete(self, asked: dict[str, Any]) -> Any:
        found = await self._result(PROGRAM, {"ids": asked["prompt"], "count": asked["max_tokens"]})
        return found["ids"]

    async def _result(self, program: Path, input: dict[str, Any]) -> Any:
        outcome = await self._host.run(program, input, limits=self._limits)
        self.used.add(outcome.usage)
        self.used.add(outcome.children)
        return outcome.result

    async def _usage(self, asked: dict[str, Any]) -> dict[str, int]:
        used = self.used
        return {"forwarded": used.forwarded_tokens, "cached": used.cached_tokens, "evicted": used.evicted_pages}


async def serve(model: Path, backend: str, threads: int, kv_memory: int) -> None:
    """Until standard input ends. What it is, and where, is told in a line."""
    settings = Settings(threads=threads, kv_memory=kv_memory)
    runtime = await open_runtime(str(model), settings, backend=backend)
    choice = runtime.choice
    try:
        async with serving(Endpoint(runtime.host).handlers) as url:
            told: dict[str, Any] = {
                "description": f"pie-edge {pie_edge.__version__}, {choice.backend} ({choice.device})",
                "url": url,
            }
            # The cpu backend computes a row in the same way whatever is beside it.
            told |= {"exact": choice.backend == "cpu", "memory": resident()}
            print(json.dumps(told), flush=True)
            await asyncio.to_thread(sys.stdin.read)
    finally:
        await runtime.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.calling.ours", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--kv-memory", type=int, default=0)
    asked = parser.parse_args()
    asyncio.run(serve(asked.model, asked.backend, asked.threads, asked.kv_memory))


if __name__ == "__main__":
    main()
