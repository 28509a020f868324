"""A side in a process of its own, so that neither memory nor threads of one disturb the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 600.0
"""Seconds that one answer may take."""
UNUSUAL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE")
"""Variables of some build machines that users don't have: another processor's linear algebra, modules compiled at each start."""


class PeerMissingError(Exception):
    """The peer isn't installed here."""


def environment() -> dict[str, str]:
    """What a measured process gets."""
    return {name: value for name, value in os.environ.items() if name not in UNUSUAL}


def describe_exit(code: int, told: str) -> str:
    last = told.strip().splitlines()[-15:]
    return f"it ended with status {code}" + ("; its last words:\n" + "\n".join(last) if last else "")


def worker(side: str, model: Path, backend: str, threads: int, clock: str) -> list[str]:
    """The command of ``benchmarks.worker`` for a side."""
    command = [sys.executable, "-m", "benchmarks.worker", side, str(model)]
    return [*command, "--backend", backend, "--threads", str(threads), "--clock", clock]


class Process:
    """A running side. Raises PeerMissingError when its library isn't there, ChildProcessError when it dies."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name = name
        self._child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: list[str] = []
        # A full pipe would stop it: its errors are read all the time.
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        self.memory = 0
        try:
            self.facts = self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        return str(self.facts["description"])

    def measure(self, workload: str, **arguments: Any) -> float:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"workload": workload, **arguments}) + "\n")
        self._child.stdin.flush()
        return float(self._answer()["value"])

    def close(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def _answer(self) -> Mapping[str, Any]:
        assert self._child.stdout is not None
        alarm = threading.Timer(LONGEST, self._child.kill)
        alarm.start()
        line = self._child.stdout.readline()
        alarm.cancel()
        if not line:
            code = self._child.wait()
            self._reader.join(5)
            raise ChildProcessError(f"{self._name}: {describe_exit(code, ''.join(self._errors))}")
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise PeerMissingError(answer["missing"])
        self.memory = max(self.memory, answer["memory"] or 0)
        return answer

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as stream:
            self._errors.extend(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
