"""``pie-edge batch`` with a model: in one process tree, interrupted and gone on with, and over a running server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cli


def requests(count: int, tokens: int) -> str:
    """Of three endpoints in turn."""
    said = [{"role": "user", "content": "Name a colour."}]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": said, "max_tokens": tokens}),
        ("/v1/completions", {"prompt": "The sea is", "max_tokens": tokens, "temperature": 0}),
        ("/v1/responses", {"input": said, "max_output_tokens": max(tokens, 16), "store": False}),
    ]
    lines = [
        {"custom_id": f"r{n}", "method": "POST", "url": url, "body": {"model": "smollm2-135m", **body}}
        for n in range(count)
        for url, body in [kinds[n % len(kinds)]]
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def answers(path: Path) -> dict[str, Any]:
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({one["custom_id"] for one in found}) == len(found), "each has one answer"
    return {one["custom_id"]: one["response"] for one in found}


def test_an_interrupted_batch_keeps_what_is_done_and_goes_on(cli: Cli, smollm2_path: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(requests(18, 16))
    target = tmp_path / "out.jsonl"
    words = ["batch", "in.jsonl", "out.jsonl", "--model", str(smollm2_path), "--backend", "cpu", "--parallel", "2"]
    first = subprocess.Popen(
        [sys.executable, "-P", "-m", "pie_edge.cli", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 90
        while not (target.exists() and target.read_bytes().count(b"\n") >= 3):
            assert first.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        os.killpg(first.pid, signal.SIGINT)  # as a terminal does
        _, notes = first.communicate(timeout=30)
    finally:
        first.kill()
    assert first.returncode == 130, notes
    assert "interrupted; what was answered is in out.jsonl" in notes
    kept = answers(target)
    assert 3 <= len(kept) < 18
    second = cli(*words)
    assert second.returncode == 0, second.stderr
    assert f"{18 - len(kept)} answered, 0 failed, {len(kept)} were done before" in second.stderr
    assert answers(target).keys() == {f"r{n}" for n in range(18)}
    assert {response["status_code"] for response in answers(target).values()} == {200}


@contextmanager
def server(model: Path) -> Iterator[str]:
    words = ("serve", "--port", "0", "--model", str(model), "--backend", "cpu", "--api-key", "secret")
    process = subprocess.Popen([sys.executable, "-P", "-m", "pie_edge.cli", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if found := re.search(r"listening on (\S+)", line):
                address = found[1]
            if " is ready" in line:
                break
        assert address
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_a_batch_over_a_running_server(cli: Cli, smollm2_path: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(requests(3, 4))
    with server(smollm2_path) as address:
        done = cli("batch", "in.jsonl", "out.jsonl", "--url", address, "--api-key", "secret")
        assert done.returncode == 0, done.stderr
        found = answers(tmp_path / "out.jsonl")
        assert found["r1"]["body"]["choices"][0]["text"] == " a place of endless"
        refused = cli("batch", "in.jsonl", "out2.jsonl", "--url", address, "--api-key", "wrong")
    assert refused.returncode == 1
    assert {response["status_code"] for response in answers(tmp_path / "out2.jsonl").values()} == {401}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing.jsonl", "out.jsonl"), "nothing.jsonl can't be read"),
        (("in.jsonl", "in.jsonl"), "in.jsonl has no answer of a batch in line 1"),
        (("in.jsonl", "out.jsonl", "--url", "here"), "--url here is no server's address"),
    ],
)
def test_what_cant_be_a_batch_is_refused_before_a_model_loads(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "in.jsonl").write_text(requests(1, 1))
    done = cli("batch", *words, "--model", "nothing")
    assert done.returncode == 2
    assert told in done.stderr
