"""Load on the server, and on llama.cpp's beside it: ``python -m benchmarks.serve``.

What is measured is named: ``load`` (three profiles of use with Poisson arrivals: times to first and next token at one rate, the
most requests a second within the profile's limits, and throughput), ``overhead`` (HTTP and inferlets against the engine's own
calls at 16 streams), ``soak`` (20,000 requests: memory and pace), ``tokenizing`` (its share of the time to the first token), and
``stalls`` (what long bodies, schemas and crowds do to steps). This process is the generator; servers have their own.
``--url`` measures a server that runs already instead of ours; ``--quick`` is a smoke run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import models
from benchmarks.harness import Summary, ratio, table
from benchmarks.processes import PeerMissingError
from benchmarks.serving import overhead, soak, stalls, tokenizing
from benchmarks.serving.client import Client
from benchmarks.serving.load import Figures, highest_rate, keep_busy, offer
from benchmarks.serving.profiles import PROFILES, Profile
from benchmarks.serving.servers import Server, llama_cpp, ours
from benchmarks.speed import cores

STREAMS = 16
SLOTS, ROOM = 32, 2048


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _row(name: str, profile: str, figures: Figures, rate: str) -> list[str]:
    first = f"{_time(figures.half_first)}, {_time(figures.most_first)}"
    following = f"{_time(figures.half_next)}, {_time(figures.most_next)}"
    failed = f"{figures.errors} of {figures.requests}"
    return [profile, name, rate, first, following, f"{figures.tokens_per_second:.0f}", f"{figures.content:.0%}", failed]


HEADER = (
    "profile",
    "server",
    "requests/s",
    "first token, p50, p99",
    "next token, p50, p99",
    "tokens/s",
    "content",
    "failed",
)


async def _profile(client: Client, server: Server, profile: Profile, asked: argparse.Namespace) -> list[list[str]]:
    seeds = itertools.count(1)  # requests that came before are cached, and new ones aren't

    async def attempt(rate: float) -> Figures:
        figures = await offer(client, server.model, profile, rate, asked.seconds, next(seeds))
        print(" | ".join(_row(name, profile.name, figures, f"{rate:.2f}")), file=sys.stderr)
        return figures

    name = server.description.split(",")[0]
    await keep_busy(client, server.model, profile, STREAMS, STREAMS, seed=0)  # warm: kernels, the shared beginning
    rows = [_row(name, profile.name, await attempt(asked.rate), f"{asked.rate:g}")]
    highest, figures = await highest_rate(attempt, asked.rate / 4, asked.halvings)
    if figures is not None:
        rows.append(_row(name, profile.name, figures, f"**{highest:.2f}** at most"))
    else:
        rows.append([profile.name, name, f"under {asked.rate / 4:g}", *["-"] * 5])
    full = await keep_busy(client, server.model, profile, STREAMS, asked.requests, next(seeds))
    rows.append(_row(name, profile.name, full, f"{full.requests_per_second:.2f}, {STREAMS} at a time"))
    return rows


def _servers(asked: argparse.Namespace, model: Path) -> Iterator[contextlib.AbstractContextManager[Server]]:
    if asked.url:
        yield contextlib.nullcontext(Server(asked.url, asked.url, asked.name, 0))
    else:
        yield ours(model, ("--backend", asked.backend))
    yield llama_cpp(model, asked.threads, SLOTS, ROOM)


def load(asked: argparse.Namespace, model: Path) -> None:
    rows = []
    for opening in _servers(asked, model):
        try:
            with opening as server:
                for profile in PROFILES:
                    rows += asyncio.run(_profile(Client(server.url, asked.key), server, profile, asked))
                print(f"{server.description}: {server.memory / 2**20:.0f} MiB", file=sys.stderr)
        except PeerMissingError as error:
            print(f"without llama.cpp: {error}", file=sys.stderr)
    order = [profile.name for profile in PROFILES]
    print(table(HEADER, sorted(rows, key=lambda row: order.index(row[0]))))


def measure_overhead(asked: argparse.Namespace, model: Path) -> None:
    found = overhead.measure(model, asked.rounds, asked.threads)
    sides = {"the engine's calls": found.engine, "inferlets": found.inferlets, "HTTP and inferlets": found.server}
    rows = [[name, Summary.of(values).show(), ratio(values, found.engine).show(2)] for name, values in sides.items()]
    print(table((f"{STREAMS} streams through", "tokens/s", "of the engine's"), rows))
    shares = [[name, f"{share:.1%}"] for name, share in found.shares.items()]
    print("\n" + table(("the server's engine", "of the time"), shares))


def measure_soak(asked: argparse.Namespace, model: Path) -> None:
    def progress(one: soak.Window) -> None:
        print(f"{one.memory / 2**20:.0f} MiB, {1000 * one.next:.1f} ms, {one.errors} failed {one.why}", file=sys.stderr)

    with ours(model, ("--backend", asked.backend), soak.SETTINGS) as server:
        found = asyncio.run(soak.soak(Client(server.url), server, asked.soak, STREAMS, progress))
    rows = [
        [str(number), f"{one.memory / 2**20:.0f}", f"{1000 * one.next:.1f}", str(one.errors)]
        for number, one in enumerate(found.windows, 1)
    ]
    print(table((f"part of {asked.soak} requests", "MiB", "ms between tokens", "failed"), rows))
    print(f"\nmemory {found.growth:+.1%}, time between tokens {found.drift:+.1%}, first third to last")


def measure_tokenizing(asked: argparse.Namespace, model: Path) -> None:
    found = tokenizing.measure(model, asked.tokens)
    print(
        f"{found.tokens} tokens of text take {1000 * found.tokenizing:.0f} ms, the first token {found.first:.2f} s: "
        f"{found.share:.1%}"
    )


def measure_stalls(asked: argparse.Namespace, model: Path) -> None:
    rows = [
        [one.name, *(f"{1000 * value:.2f}" for value in (one.half, one.most, one.longest))]
        for one in stalls.measure(model)
    ]
    print(table(("beside four streams", "ms the device idles, p50", "p99", "longest"), rows))


PARTS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "load": load,
    "overhead": measure_overhead,
    "soak": measure_soak,
    "tokenizing": measure_tokenizing,
    "stalls": measure_stalls,
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.serve", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: load")
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--url", default="", help="a server that runs already, in place of ours")
    parser.add_argument("--name", default="", help="the model's name there")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("--threads", type=int, default=cores(), help="of the peer and the engine; default: one a core")
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second at which latencies are compared")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long requests come, each time")
    parser.add_argument("--halvings", type=int, default=2, help="how finely the highest rate is looked for")
    parser.add_argument("--requests", type=int, default=64, help="of a profile, 16 at a time, for throughput")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--soak", type=int, default=20_000, metavar="REQUESTS")
    parser.add_argument("--tokens", type=int, default=32_000, help="of the long prompt")
    parser.add_argument("--quick", action="store_true", help="a smoke run: what it prints means nothing")
    asked = parser.parse_args(argv)
    if asked.quick:
        asked.seconds, asked.halvings, asked.requests, asked.rounds = 4.0, 0, 8, 1
        asked.soak, asked.tokens = 100, 500
    if unknown := set(asked.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for part in asked.parts or ["load"]:
        PARTS[part](asked, models.find(asked.model))
    return 0


if __name__ == "__main__":
    sys.exit(main())
