"""The load generator of benchmarks/: that it sends what it says, when it says, and reports what came. Nothing here is timed."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving import load, soak, stalls
from benchmarks.serving.client import Answer, Client
from benchmarks.serving.llama_cpp import Front, Streaming
from benchmarks.serving.profiles import PROFILES, Profile, arrivals

PROFILE = Profile("test", shared=20, own=(10, 30), tokens=(3, 9), first=0.3, next=0.1)
TEXTS = ["Hello", " wörld", "\n\n", "!"]


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events)


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}]}


@asynccontextmanager
async def server(status: str, body: bytes, pieces: int = 0) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Answers everything alike, in chunks of so many bytes, or without chunks. The URL, and what was asked."""
    asked: list[dict[str, Any]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        asked.append(json.loads(await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))))
        coding = "Transfer-Encoding: chunked\r\n" if pieces else ""
        writer.write(f"HTTP/1.1 {status}\r\n{coding}\r\n".encode())
        for first in range(0, len(body), pieces or len(body)):
            part = body[first : first + (pieces or len(body))]
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if pieces else part)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if pieces else b"")
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked


def answered(status: str, body: bytes, pieces: int = 0) -> tuple[Answer, list[dict[str, Any]]]:
    async def inside() -> tuple[Answer, list[dict[str, Any]]]:
        async with server(status, body, pieces) as (url, asked):
            return await Client(url).stream(load.PATH, {"model": "m"}), asked

    return asyncio.run(inside())


@pytest.mark.parametrize("pieces", [0, 1, 7, 1000])
def test_a_stream_is_read_however_it_is_cut(pieces: int) -> None:
    body = (
        b": a comment\n\n"
        + sse(*map(delta, TEXTS), {"choices": [], "usage": {"completion_tokens": 5}})
        + b"data: [DONE]\n\n"
    )
    answer, asked = answered("200 OK", body, pieces)
    assert (answer.text, len(answer.tokens), answer.count, answer.error) == ("".join(TEXTS), len(TEXTS), 5, "")
    assert answer.tokens == sorted(answer.tokens) and answer.tokens[-1] <= answer.ended
    assert asked == [{"model": "m", "stream": True, "stream_options": {"include_usage": True}}]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("429 Too Many Requests", b'{"error": {"message": "full"}}', "full"),
        ("200 OK", sse(delta("a"), {"error": {"message": "lost"}}), "lost"),
        ("200 OK", b"data: {broken\n\n", "Expecting"),
    ],
)
def test_an_answer_that_fails_says_why(status: str, body: bytes, told: str) -> None:
    answer, _ = answered(status, body)
    assert told in answer.error


def test_a_server_that_is_not_there_is_an_answer_with_an_error() -> None:
    assert asyncio.run(Client("http://127.0.0.1:1").stream("/", {})).error


def test_arrivals_are_a_poisson_process() -> None:
    moments = list(arrivals(5.0, 2000.0, 1))
    gaps = [after - before for before, after in itertools.pairwise([0.0, *moments])]
    assert moments == sorted(moments) and moments[-1] < 2000.0
    assert sum(gaps) / len(gaps) == pytest.approx(0.2, rel=0.05)
    # Of an exponential distribution the share beyond the mean is 1/e.
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(1 / math.e, abs=0.02)
    assert moments == list(arrivals(5.0, 2000.0, 1)) != list(arrivals(5.0, 2000.0, 2))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_requests_are_of_their_profile_and_the_same_for_a_seed(profile: Profile) -> None:
    first, again = (list(itertools.islice(profile.requests("m", 3), 20)) for _ in range(2))
    assert first == again
    assert all(profile.tokens[0] <= body["max_tokens"] <= profile.tokens[1] for body in first)
    beginnings = {body["messages"][0]["content"] for body in first}
    questions = [body["messages"][1]["content"] for body in first]
    assert len(beginnings) == 1 and len(set(questions)) == len(questions)
    assert min(len(question.split()) for question in questions) >= profile.own[0]


def test_figures_count_the_content_and_leave_out_no_failure() -> None:
    answers = [
        Answer(tokens=[0.1, 0.15, 0.2], ended=0.2, count=3),
        Answer(tokens=[0.5, 0.55], ended=0.55, count=2),
        Answer(tokens=[0.1, 0.4], ended=0.4, count=2),
        Answer(error="full"),
    ]
    figures = load.Figures.of(answers, PROFILE, 2.0)
    assert (figures.requests, figures.errors, figures.content) == (4, 1, 0.25)
    assert (figures.tokens_per_second, figures.requests_per_second) == (3.5, 1.5)
    assert (figures.half_first, figures.most_first) == (0.1, 0.5)
    assert figures.most_next == pytest.approx(0.3)


@pytest.mark.parametrize("limit", [0.3, 1.0, 5.3, 40.0])
def test_the_highest_rate_that_is_served_is_found(limit: float) -> None:
    tried: list[float] = []

    async def attempt(rate: float) -> load.Figures:
        tried.append(rate)
        return load.Figures(10, 0, 0, 0, 0, 0, 0, rate, 1.0 if rate <= limit else 0.5, 0)

    found, figures = asyncio.run(load.highest_rate(attempt, 0.25, 5))
    assert figures is not None and figures.requests_per_second == found
    assert found <= limit < found * (1 + 2 / 2**5)
    assert len(tried) < 16
    assert asyncio.run(load.highest_rate(attempt, 100.0, 5)) == (0.0, None)


def test_load_is_offered_at_its_own_pace_whatever_the_server_does() -> None:
    async def body() -> tuple[load.Figures, list[dict[str, Any]]]:
        async with server("200 OK", sse(*map(delta, TEXTS))) as (url, asked):
            return await load.offer(Client(url), "m", PROFILE, 200.0, 0.2, seed=1), asked

    figures, asked = asyncio.run(body())
    assert figures.requests == len(list(arrivals(200.0, 0.2, 1))) == len(asked) > 10
    assert (figures.errors, figures.content) == (0, 1.0)


def test_memory_and_pace_are_compared_from_the_first_third_to_the_last() -> None:
    warm = [soak.Window(1, 9.0, 0)] * soak.WARM
    rest = [soak.Window(100 + number, 0.010 + number * 0.0001, 0) for number in range(18)]
    found = soak.Soaked((*warm, *rest))
    assert found.growth == pytest.approx(117 / 105 - 1)
    assert found.drift == pytest.approx(0.01145 / 0.01025 - 1)


def test_the_device_s_idle_times_are_those_between_the_steps_of_a_part(tmp_path: Path) -> None:
    spans = [(0.0, 1.0), (1.0, 2.0), (2.25, 3.0), (3.5, 4.0), (9.0, 9.5)]
    events = [{"cat": "device", "ts": began * 1e6, "dur": (ended - began) * 1e6} for began, ended in reversed(spans)]
    (tmp_path / "out.json").write_text(json.dumps([{"cat": "guest", "ts": 0, "dur": 9e9}, *events]))
    gaps = stalls._gaps("x", stalls._steps(tmp_path / "out.json"), 0.5, 5.0)
    assert (gaps.half, gaps.longest) == (0.5, 0.5)
    assert stalls._gaps("x", spans, 0.0, 3.0).longest == 0.25


class Counting:
    """A model whose next token is the last one and one."""

    def forward(self, entries: Sequence[tuple[int, int, int, bool]]) -> Iterable[int]:
        return [token + 1 for _, _, token, wanted in entries if wanted]

    def forget(self, sequence: int, first: int) -> None: ...


class Letters:
    """A tokenizer, and turns: a letter is a token."""

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def conversation(self, messages: Sequence[dict[str, str]], *_: Any) -> list[int]:
        return [ord(letter) for message in messages for letter in message["content"]]


def test_the_peer_streams_what_its_engine_chooses_to_several_clients() -> None:
    async def body() -> list[Answer]:
        slots = Streaming(Counting(), slots=2, room=64)
        front = Front(slots, Letters(), Letters())
        listening = await asyncio.start_server(front.connected, "127.0.0.1", 0)
        async with listening:
            client = Client(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
            bodies = [{"messages": [{"content": f"xyz{letter}"}], "max_tokens": 4} for letter in "afk"]
            answers = [await client.stream(load.PATH, bodies[0])]
            answers += await asyncio.gather(*(client.stream(load.PATH, one) for one in bodies))
            answers.append(await client.stream(load.PATH, {"messages": [{"content": "x" * 99}], "max_tokens": 4}))
        await slots.close()
        return answers

    first, *together, refused = asyncio.run(body())
    assert first.text == "bcde" and (first.count, len(first.tokens)) == (4, 4)
    assert [answer.text for answer in together] == ["bcde", "ghij", "lmno"]
    assert "room for 64" in refused.error
