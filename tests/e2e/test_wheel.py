"""The wheel is whole: built, installed in an empty environment outside the checkout, it runs the quickstart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of an environment that holds the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    install = [str(scripts / "python"), *PIP[1:], "install", "--quiet", str(wheel)]
    subprocess.run(install, check=True, timeout=240)
    return scripts


def test_the_wheel_holds_every_kind_of_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    expected = {"pie_edge/py.typed", "pie_edge/host/data/python.wasm"}
    for folder, inside in ((ROOT / "pie_edge", "pie_edge"), (ROOT / "backends", "pie_edge/backends")):
        expected |= {f"{inside}/{file.relative_to(folder).as_posix()}" for file in files(folder)}
    for pattern in ("wit/*.wit", "sdk/python/**/*.py"):
        found = {file.relative_to(ROOT).as_posix() for file in (ROOT / "inferlets").glob(pattern)}
        assert found, pattern
        expected |= {f"pie_edge/{name}" for name in found}
    assert not expected - names
    assert not [name for name in names if "__pycache__" in name or not name.startswith(("pie_edge/", "pie_edge-"))]


def files(folder: Path) -> list[Path]:
    """Of every kind, but for what tools leave behind."""
    hidden = (".", "__pycache__")
    return [
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(hidden) for part in file.relative_to(folder).parts)
    ]


def run(commands: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [commands / words[0], *words[1:]], cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )


def test_an_installed_wheel_runs_the_quickstart_outside_the_checkout(commands: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "inferlets/quickstart/main.py", tmp_path / "program.py")
    words = ["run", "program.py", "--", "--prompt", "The capital of France is"]
    done = run(commands, "pie-edge", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.lstrip().startswith("Paris"), done.stdout
    assert run(commands, "pie", *words, cwd=tmp_path).stdout == done.stdout


def test_an_installed_wheel_is_healthy_and_asks_for_nothing_that_is_missing(commands: Path, tmp_path: Path) -> None:
    assert run(commands, "python", "-m", "pip", "check", cwd=tmp_path).returncode == 0
    doctor = run(commands, "pie-edge", "doctor", cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
