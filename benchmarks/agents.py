"""Agents that call tools, as inferlets and as clients of a completions API: ``python -m benchmarks.agents``.

First the same agent beside the model and in a client that sends the conversation again with every turn, by the number of its
calls; then a ladder of what only a program can do about documents and calls. ``--page docs/agents.md`` writes the tables
between that page's marks, ``--image FILE`` draws the curves (needs matplotlib), ``--quick`` is a smoke run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.calling.client import Inferlets, RequestingAgents
from benchmarks.calling.compare import INFERLET, PEER, REQUESTS, Comparison
from benchmarks.calling.ladder import PEER_CLIENT, Ladder, Side
from benchmarks.calling.llama_cpp import SLOTS
from benchmarks.calling.loopback import Client, serving
from benchmarks.calling.report import Findings, draw, render
from benchmarks.calling.script import FULL, QUICK, SHAPES, Scripts, Sizes, Tokenizer
from benchmarks.harness import in_turns
from benchmarks.inferlets import dialogue
from benchmarks.processes import PeerMissingError, Process
from benchmarks.quiet import Patience
from benchmarks.speed import cores

BEGIN, END = "<!-- figures: python -m benchmarks.agents -->", "<!-- end of figures -->"
LATENCY = 0.05
"""Seconds that the tool takes."""
KV_MEMORY = 3 << 30
"""Bytes of pages: what 128 agents need who share nothing."""


@dataclass(frozen=True)
class Setup:
    """How all of it is measured. ``rounds`` are those of one agent; the others take turns once, for they take long."""

    sizes: Sizes
    rounds: int
    patience: Patience


@dataclass
class Bench:
    """A loop, a tool on it, and clients of the servers; everything ends with it."""

    tokenizer: Tokenizer
    setup: Setup
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __enter__(self) -> Bench:
        self.tool: str = self.runner.run(self._stack.enter_async_context(serving({"/search": search})))
        self.scripts = Scripts(self.tokenizer, self.setup.sizes)
        return self

    def __exit__(self, *raised: object) -> None:
        self.runner.run(self._stack.aclose())
        self.runner.close()

    def client(self, url: str) -> Client:
        client = Client(url)
        self._stack.push_async_callback(client.close)
        return client

    def sides(self, servers: Mapping[str, Client]) -> dict[str, Side]:
        tools = self.client(self.tool)
        return {
            name: Inferlets(server, self.tool) if name == INFERLET else RequestingAgents(server, tools, self.tokenizer)
            for name, server in servers.items()
        }


async def search(asked: dict[str, Any]) -> str:
    """The tool, which takes its time."""
    await asyncio.sleep(LATENCY)
    return dialogue.found(asked["call"])


def compare(bench: Bench, sides: Mapping[str, Side], findings: Findings, exact: bool) -> None:
    """By the number of calls; ``exact``: ours have to write the same tokens on both ways."""
    setup, sizes = bench.setup, bench.setup.sizes
    made = Comparison(sides, bench.scripts, sizes, bench.runner, setup.patience)
    made.warm_up()
    for together, counts, rounds in ((1, sizes.calls, setup.rounds), (sizes.together, sizes.together_calls, 1)):
        for shape in SHAPES:
            for calls in counts:
                findings.points.append(made.point(shape, calls, together, rounds))
                print(findings.points[-1], file=sys.stderr)
    findings.agreement = made.check(exact)


def climb(bench: Bench, sides: Mapping[str, Side], findings: Findings, exact: bool) -> None:
    """Rung by rung, by the number of agents."""
    ladder, run = Ladder(sides, bench.scripts), bench.runner.run
    run(ladder.export())
    run(ladder.check(exact))
    if PEER_CLIENT in ladder.rungs:
        # Each of llama.cpp's slots reads the documents once.
        run(ladder.climb(PEER_CLIENT, min(SLOTS, max(bench.setup.sizes.agents))))
    for agents in bench.setup.sizes.agents:
        # Of few agents there is time for several rounds.
        rounds = bench.setup.rounds if agents == 1 else 1
        measures = {
            rung: partial(lambda rung, agents: run(ladder.climb(rung, agents)), rung, agents) for rung in ladder.rungs
        }
        for rung, seconds in in_turns(measures, rounds, bench.setup.patience).items():
            findings.ladder.setdefault(rung, {})[agents] = seconds
            print(f"{agents} agents, {rung}: {seconds}", file=sys.stderr)
    run(ladder.withdraw())


def tokenizer_of(path: Path) -> Tokenizer:
    from pie_edge.tokenizer import Tokenizer as OurTokenizer
    from pie_edge.weights.checkpoint import open_checkpoint

    with open_checkpoint(path) as checkpoint:
        return OurTokenizer.from_gguf(checkpoint.metadata)


def measure(model: Path, asked: argparse.Namespace) -> Findings:
    setup = Setup(QUICK if asked.quick else FULL, 1 if asked.quick else asked.rounds, Patience(asked.patience))
    findings = Findings({})
    with Bench(tokenizer_of(model), setup) as bench, ExitStack() as stack:
        servers = start(stack, model, asked)
        findings.sides = {name: server.description for name, server in servers.items()}
        exact = bool(servers[REQUESTS].facts["exact"])
        clients = {name: bench.client(server.facts["url"]) for name, server in servers.items()}
        sides = bench.sides(clients)
        compare(bench, sides, findings, exact)
        findings.used = {name: bench.runner.run(client.post("/usage", {})) for name, client in clients.items()}
        climb(bench, sides, findings, exact)
    setup.patience.tell()
    return findings


def start(stack: ExitStack, model: Path, asked: argparse.Namespace) -> dict[str, Process]:
    """Each side in a process of its own."""
    kv_memory = 0 if asked.quick else KV_MEMORY
    ours = ["--backend", asked.backend, "--kv-memory", str(kv_memory)]
    servers = {}
    for name, module, more in ((INFERLET, "ours", ours), (REQUESTS, "ours", ours), (PEER, "llama_cpp", [])):
        command = [sys.executable, "-m", f"benchmarks.calling.{module}", str(model), "--threads", str(asked.threads)]
        try:
            servers[name] = stack.enter_context(Process(name, [*command, *more]))
        except PeerMissingError as error:
            print(f"{name} is not here, only ours is measured: {error}", file=sys.stderr)
    return servers


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.agents", description=__doc__)
    parser.add_argument("--model", default=models.MODELS[0], help="by name, or a GGUF file")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int, default=cores(), help="of each side; default: one a core")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few and short agents: whether it works, not how quickly")
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for an idle machine, each time")
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--image", type=Path)
    asked = parser.parse_args(argv)
    start = time.perf_counter()
    findings = measure(models.find(asked.model), asked)
    text = render(findings)
    print(text)
    if asked.json is not None:
        asked.json.write_text(json.dumps(findings.json(), indent=2), encoding="utf-8")
    if asked.page is not None:
        page = asked.page.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        asked.page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    if asked.image is not None:
        draw(findings, asked.image)
    print(f"({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
