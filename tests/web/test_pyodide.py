"""The control path runs in a browser's Python: in Pyodide, from our wheel, the very steps that CPython forms come out."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.web.steps import CALLERS, STEPS, report

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@pytest.fixture(scope="module")
def in_pyodide(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What ``steps.report`` says there, and what that Python has."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; it runs Pyodide")
    if not (FOLDER / "node_modules" / "pyodide").is_dir():
        pytest.skip("the npm package pyodide is not installed; run: npm install --prefix tests/web")
    wheel = request.getfixturevalue("wheel")
    command = [node, FOLDER / "pyodide_steps.mjs", ROOT, wheel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def natively() -> dict[str, Any]:
    return asyncio.run(report())


def test_the_browser_s_python_has_neither_numpy_nor_threads(in_pyodide: dict[str, Any]) -> None:
    assert in_pyodide["platform"] == "emscripten"
    assert "site-packages" in in_pyodide["package"]
    assert (in_pyodide["numpy"], in_pyodide["wasmtime"], in_pyodide["threads"]) == (False, False, False)


def test_smollm2_s_configuration_gives_the_same_program_there(
    in_pyodide: dict[str, Any], natively: dict[str, Any]
) -> None:
    assert in_pyodide["program"] == natively["program"]
    assert in_pyodide["ops"] > 400


def test_a_hundred_batched_steps_of_eight_callers_are_the_same_there_word_for_word(
    in_pyodide: dict[str, Any], natively: dict[str, Any]
) -> None:
    assert in_pyodide["blocks"][:STEPS] == natively["blocks"][:STEPS]
    assert STEPS <= in_pyodide["steps"] <= len(in_pyodide["blocks"]) <= in_pyodide["steps"] + 2
    assert in_pyodide["largest_step"] == CALLERS
    assert in_pyodide["passes"] == [STEPS] * CALLERS
    assert in_pyodide["answers"] == [[7] * STEPS] * CALLERS
    assert in_pyodide["pages_held"] == 0


def test_a_hundred_batched_steps_of_eight_callers_run_natively(natively: dict[str, Any]) -> None:
    # A step that was only foreseen may still be under way when the last caller has its answer.
    assert STEPS <= natively["steps"] <= len(natively["blocks"]) <= natively["steps"] + 2
    assert natively["largest_step"] == CALLERS
    assert natively["forwarded"] == [2 + n % 4 + STEPS - 1 for n in range(CALLERS)]
    assert natively["pages_held"] == 0
