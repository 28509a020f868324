"""A whole server watched: its processes' spans in one file, their figures in one page, requests and their tokens in one log."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pie_edge.cli.figures import Look, read
from pie_edge.config import load
from pie_edge.errors import UsageError
from pie_edge.server.serve import serving
from tests.support.scripted import Scripted

KEY = "sesame"
ID = "mine-7"
PIECES = [f" word{number}" for number in range(8)]
ASKED = {"messages": [{"role": "user", "content": "[count]"}], "temperature": 0}


def answered(server: str, model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fetched(f"{server}/v1/chat/completions", {"model": model.name, **ASKED}))
    assert found["choices"][0]["message"]["content"] == "".join(PIECES)
    return found


def fetched(url: str, body: dict[str, Any] | None = None, key: str = KEY) -> bytes:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "x-request-id": ID}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return bytes(answer.read())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Scripted({"count": PIECES}).write(tmp_path_factory.mktemp("models") / "scripted")


@pytest.fixture(scope="module")
def watched(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Look, list[dict[str, Any]], Path, int]:
    """What a request was answered, the figures after it, the timeline, its folder, and the status of the page without a key."""
    folder = tmp_path_factory.mktemp("watched")
    flags = {
        "model": str(model),
        "backend": "cpu",
        "serve.port": 0,
        "serve.api_keys": [KEY],
        "serve.profile": str(folder / "out.json"),
    }

    async def body() -> tuple[dict[str, Any], Look, int]:
        async with serving(load(flags, {}).settings) as server:
            await server.supervisor.ready()
            answer = await asyncio.to_thread(answered, server.url, model)
            figures = await asyncio.to_thread(fetched, f"{server.url}/metrics")
            script = await asyncio.to_thread(fetched, f"{server.url}/page/main.js", None, "")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await asyncio.to_thread(fetched, f"{server.url}/metrics", None, "wrong")
            return answer, read(figures.decode(), 0.0), len(script)

    answer, look, script = asyncio.run(body())
    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return answer, look, found, folder, script


Watched = tuple[dict[str, Any], Look, list[dict[str, Any]], Path, int]


def test_figures_are_of_both_processes(watched: Watched) -> None:
    answer, look, _, _, _ = watched
    usage = answer["usage"]
    assert look.values["up"] == 1
    assert look.values["request_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert look.values["inferlets_done"] == 1
    assert look.values["read_rows"] >= usage["completion_tokens"]
    assert look.values["time_to_first_token_seconds_count"] == 1
    assert look.values["generations_working"] == look.values["generations_waiting"] == 0


def test_the_timeline_has_the_request_and_the_steps_of_it(watched: Watched) -> None:
    _, look, found, folder, _ = watched
    processes = {event["args"]["name"] for event in found if event["name"] == "process_name"}
    assert processes == {"server", "engine"}
    began = [event for event in found if event["ph"] == "b" and event["cat"] == "requests"]
    names = [event["name"] for event in began if event["id"] == began[0]["id"]]
    assert names == ["POST /v1/chat/completions", "queue", "prefill", "decode"]
    assert began[0]["args"] == {"id": ID, "status": 200}
    ends = {event["name"]: event["ts"] for event in found if event["ph"] == "e" and event["id"] == began[0]["id"]}
    batches = [event for event in found if event["ph"] == "b" and event["cat"] == "batch"]
    assert len(batches) == look.values["steps"]
    assert {name.split("#")[0] for event in batches for name in event["args"]["calls"]} == {f"completion {ID}"}
    # Both processes' clocks are the same: the steps are inside of the request.
    assert all(began[0]["ts"] <= event["ts"] <= ends["POST /v1/chat/completions"] for event in batches)
    assert [path.name for path in folder.iterdir()] == ["out.json"]


def test_the_page_needs_no_key_and_figures_do(watched: Watched) -> None:
    assert watched[4] > 0


def test_tokens_are_logged_by_request_when_that_is_asked_for(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flags = {"model": str(model), "backend": "cpu", "serve.port": 0, "serve.log": "json", "serve.log_tokens": True}

    async def body() -> dict[str, Any]:
        async with serving(load(flags, {}).settings) as server:
            await server.supervisor.ready()
            return await asyncio.to_thread(answered, server.url, model)

    usage = asyncio.run(body())["usage"]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    (told,) = [line for line in lines if line["event"] == "tokens"]
    (context,) = told["contexts"]
    assert told["inferlet"] == f"completion {ID}" and told["left_out"] == 0
    assert len(context["chosen"]) >= usage["completion_tokens"]
    assert (
        context["read"][usage["prompt_tokens"] :] == context["chosen"][: len(context["read"]) - usage["prompt_tokens"]]
    )


def test_a_timeline_that_cannot_be_written_is_refused_at_once(model: Path, tmp_path: Path) -> None:
    flags = {
        "model": str(model),
        "backend": "cpu",
        "serve.port": 0,
        "serve.profile": str(tmp_path / "nowhere" / "out.json"),
    }

    async def body() -> None:
        async with serving(load(flags, {}).settings):
            pass

    with pytest.raises(UsageError, match=r"--profile .*out\.json can't be written"):
        asyncio.run(body())
