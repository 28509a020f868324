"""``run --profile``: a timeline that is whole when the inferlet has ended, and when it was interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cli
from tests.support.scripted import Scripted

ENDLESS = """
from inferlet import Context

async def main(input):
    print("begun")
    while True:
        context = Context()
        context.fill("hello")
        await context.generate_until(max_tokens=3)
"""
SHORT = ENDLESS.replace("while True", "for _ in range(2)")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Scripted({"x": ["y"]}).write(tmp_path_factory.mktemp("models") / "scripted")


def tracks(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in json.loads(path.read_text(encoding="utf-8")):
        found.setdefault(event.get("cat", ""), []).append(event)
    return found


def test_a_run_leaves_its_timeline(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text(SHORT)
    done = cli("run", "short.py", "-m", model, "--backend", "cpu", "--profile", "out.json", "--json")
    assert done.returncode == 0, done.stderr
    found = tracks(tmp_path / "out.json")
    assert {"queue", "batch", "control", "device", "guest"} <= found.keys()
    busy = sum(event["dur"] for event in found["device"]) / 1e6
    assert 0 < busy <= json.loads(done.stdout)["timings"]["run"]


def test_an_interrupted_run_leaves_what_there_was(model: Path, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = ["run", "endless.py", "-m", str(model), "--backend", "cpu", "--profile", "out.json"]
    command = [sys.executable, "-P", "-m", "pie_edge.cli", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        end = time.monotonic() + 30
        while (
            '"device"'
            not in (tmp_path / "out.json").read_text(encoding="utf-8").split('"args": {"name": "device"}')[-1]
        ):
            assert time.monotonic() < end
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    assert tracks(tmp_path / "out.json")["device"]


def test_a_file_that_cannot_be_written_is_told_before_the_model_is_loaded(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.py").write_text(SHORT)
    done = cli("run", "short.py", "-m", model, "--profile", "nowhere/out.json")
    assert done.returncode == 2
    assert "--profile nowhere/out.json can't be written: No such file or directory" in done.stderr
