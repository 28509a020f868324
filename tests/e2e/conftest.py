"""What the tests of the whole share: a command line in a process of its own, without the user's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def no_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Children see an empty configuration; models and caches are the user's, so that they are fetched and built once."""
    path = tmp_path_factory.mktemp("settings") / "config.toml"
    path.touch()
    for variable in ("PIE_EDGE_BACKEND", "PIE_EDGE_MODEL", "PIE_EDGE_DEBUG"):
        os.environ.pop(variable, None)
    os.environ["PIE_EDGE_CONFIG"] = str(path)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs the command line in an empty folder: ``cli("run", file, …)``."""

    def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "pie_edge.cli", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
