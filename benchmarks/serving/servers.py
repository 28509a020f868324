"""Servers in processes of their own: ours as a user starts it, and llama.cpp's engine behind the same API."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import ROOT, PeerMissingError, describe_exit, environment


@dataclass(frozen=True)
class Server:
    """``model`` is the name it goes by there; ``pid`` is the process that was started, which may have others."""

    description: str
    url: str
    model: str
    pid: int

    @property
    def memory(self) -> int:
        """Bytes that it and its children have in memory, without pages of mapped files; 0 where the system doesn't say."""
        return sum(_anonymous(pid) for pid in _family(self.pid))


@contextmanager
def ours(model: Path, words: Sequence[str] = (), settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """``words`` are more of the command line, ``settings`` are environment variables. Raises ChildProcessError when it doesn't
    start."""
    command = [
        sys.executable,
        "-m",
        "pie_edge.cli",
        "serve",
        "--model",
        str(model),
        "--port",
        "0",
        "--log",
        "json",
        *words,
    ]
    with _started(command, None, settings or {}) as (process, lines):
        assert process.stderr is not None
        told: dict[str, str] = {}
        for line in process.stderr:
            lines.append(line)
            if line.startswith('{"time"') and (note := json.loads(line)).get("event") == "note":
                told |= {key: note["message"] for key in ("listening on ", " is ready") if key in note["message"]}
            if len(told) == 2:
                break
        else:
            raise ChildProcessError(f"our server: {describe_exit(process.wait(), ''.join(lines))}")
        _drain(process)
        ready = told[" is ready"].removesuffix(" is ready")
        url = told["listening on "].removeprefix("listening on ")
        yield Server(f"pie-edge, {ready}", url, ready.partition(" on ")[0], process.pid)


@contextmanager
def llama_cpp(model: Path, threads: int, slots: int, room: int) -> Iterator[Server]:
    """llama.cpp with so many slots of ``room`` tokens. Raises PeerMissingError where it isn't installed."""
    words = [str(model), "--threads", str(threads), "--slots", str(slots), "--room", str(room)]
    command = [sys.executable, "-m", "benchmarks.serving.llama_cpp", *words]
    with _started(command, subprocess.PIPE, {}) as (process, lines):
        assert process.stdout is not None
        _drain(process, lines)
        line = process.stdout.readline()
        if not line:
            raise ChildProcessError(f"llama.cpp: {describe_exit(process.wait(), ''.join(lines))}")
        told = json.loads(line)
        if "missing" in told:
            raise PeerMissingError(told["missing"])
        yield Server(told["description"], told["url"], model.stem, process.pid)


@contextmanager
def _started(
    command: Sequence[str], stdin: int | None, variables: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    pipe, known = subprocess.PIPE, {**environment(), **variables}
    process = subprocess.Popen(command, cwd=ROOT, env=known, stdin=stdin, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process, []
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _drain(process: subprocess.Popen[str], lines: list[str] | None = None) -> None:
    """A full pipe would stop it."""

    def read() -> None:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if lines is not None:
                    lines.append(line)
        except ValueError:  # closed meanwhile
            pass

    threading.Thread(target=read, daemon=True).start()


def _family(pid: int) -> Iterator[int]:
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in tasks.read_text(encoding="ascii").split():
            yield from _family(int(child))


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)
