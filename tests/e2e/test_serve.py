"""``pie-edge serve`` as a user starts and ends it, with a real model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Cli


@contextmanager
def serving(model: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pie_edge.cli",
        "serve",
        "--port",
        "0",
        "--backend",
        "cpu",
        "--model",
        str(model),
    ]
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert process.stderr is not None
        url = ""
        for line in process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                url = found[1]
            if "is ready" in line:
                break
        assert url, process.wait()
        yield process, url
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def asked(url: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.loads(answer.read())


def test_a_chat_is_answered_an_inferlet_runs_beside_it_and_an_interrupt_ends_it_all(
    smollm2_path: Path, cli: Cli, tmp_path: Path
) -> None:
    with serving(smollm2_path, "--api-key", "sesame") as (process, url):
        health = asked(f"{url}/health")
        assert (health["status"], health["backend"]["name"]) == ("ready", "cpu")
        question = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
        body = {"model": health["model"]["name"], **question}
        answered = asked(f"{url}/v1/chat/completions", body, authorization="Bearer sesame")
        assert answered["choices"][0]["message"]["content"].startswith("Hello")
        variables = {"PIE_EDGE_URL": url, "PIE_EDGE_API_KEY": "sesame"}
        submitted = cli("submit", "chat", "--", "--prompt", "Hi", "--max-tokens", "4", **variables)
        attached = cli("attach", submitted.stdout.strip(), "--json", **variables)
        assert json.loads(attached.stdout)["result"]["tokens"] <= 4
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_model_that_isn_t_there_ends_the_server_with_its_error(cli: Cli) -> None:
    done = cli("serve", "--port", "0", "--model", "no-such-model.gguf")
    assert done.returncode == 2
    assert "no-such-model.gguf" in done.stderr.splitlines()[-1]


def test_without_a_key_it_isn_t_offered_to_the_network(cli: Cli) -> None:
    done = cli("serve", "--host", "0.0.0.0", "--port", "0")
    assert (done.returncode, "give one with --api-key" in done.stderr) == (2, True)


def test_a_server_whose_engine_cannot_start_never_says_that_it_listens(smollm2_path: Path, cli: Cli) -> None:
    ended = cli("serve", "--port", "0", "--backend", "cpu", "--device", "of the future", "--model", str(smollm2_path))
    assert ended.returncode == 2
    assert "backend cpu has no device 'of the future'" in ended.stderr
    assert "listening" not in ended.stderr
