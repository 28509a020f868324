"""``./pie-edge`` from nothing: the real scripts around a small project that installs in a second, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="./pie-edge is a POSIX shell script")

PYPROJECT = """
[build-system]
requires = []
build-backend = "tiny_backend"
backend-path = ["."]

[project]
name = "pie-edge"
version = "1"
"""
# The least that pip takes for an editable installation: a wheel with one .pth file.
BACKEND = """
import os, time, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    time.sleep(float(os.environ.get("TINY_SECONDS", "0")))
    info = "pie_edge-1.dist-info"
    with zipfile.ZipFile(os.path.join(folder, "pie_edge-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("pie_edge.pth", os.getcwd())
        metadata = "Metadata-Version: 2.1\\nName: pie-edge\\nVersion: 1\\nProvides-Extra: build\\nProvides-Extra: test\\n"
        need = os.environ.get("TINY_NEEDS")
        wheel.writestr(f"{info}/METADATA", metadata + (f"Requires-Dist: {need}\\n" if need else ""))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return "pie_edge-1-py3-none-any.whl"
"""
CLI = "import os, sys\nprint('ran', sys.argv[1:], 'in', os.getcwd())\n"


def make_checkout(folder: Path) -> Path:
    (folder / "scripts").mkdir(parents=True)
    (folder / "pie_edge/cli").mkdir(parents=True)
    (folder / "pie_edge/__init__.py").touch()
    (folder / "pie_edge/cli/__init__.py").touch()
    (folder / "pie_edge/cli/__main__.py").write_text(CLI)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "tiny_backend.py").write_text(BACKEND)
    for name in ("pie-edge", "scripts/bootstrap", "scripts/bootstrap.py"):
        shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "with space" / "checkout")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that was started once."""
    folder = make_checkout(tmp_path_factory.mktemp("started") / "with space")
    done = start(folder, "first")
    assert done.returncode == 0, done.stderr
    return folder


def start(
    folder: Path, *words: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "pie-edge", *words],
        cwd=cwd or folder,
        env={**_environment(), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _environment() -> dict[str, str]:
    """This Python is the python3 to be found; the suite's own virtual environment isn't active."""
    base = Path(sys.executable).resolve().parent
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return {**kept, "PATH": f"{base}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": ""}


def blocker(folder: Path, *modules: str) -> dict[str, str]:
    """Variables under which a Python can't import these modules, as when a distribution leaves them out."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nfor name in {modules}: sys.modules[name] = None\n")
    return {"PYTHONPATH": str(folder)}


def installs(folder: Path) -> int:
    return (folder / ".venv/pie-edge/install.log").read_text().count("--editable")


def test_the_first_start_installs_and_then_runs_the_command_line(checkout: Path) -> None:
    done = start(checkout, "run", "a b", "--", "--c")
    assert done.stdout == f"ran ['run', 'a b', '--', '--c'] in {checkout}\n"
    assert "pie-edge: installing" in done.stderr
    assert (checkout / ".venv/pie-edge/stamp").exists()


def test_the_second_start_runs_nothing_but_the_command_line(started: Path) -> None:
    kept = (started / "scripts/bootstrap").rename(started / "scripts/hidden")
    try:
        done = start(started, "again")
    finally:
        kept.rename(started / "scripts/bootstrap")
    assert (done.stdout, done.stderr) == (f"ran ['again'] in {started}\n", "")


def test_the_second_start_costs_less_than_60_ms_over_python_itself(started: Path) -> None:
    python = [str(started / ".venv/bin/python"), "-P", "-m", "pie_edge.cli"]
    script = [str(started / "pie-edge")]

    def fastest(command: list[str]) -> float:
        return min(_seconds(command) for _ in range(10))

    assert fastest(script) - fastest(python) < 0.060


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - began


def test_it_starts_from_any_folder_and_through_links(started: Path, tmp_path: Path) -> None:
    (tmp_path / "absolute").symlink_to(started / "pie-edge")
    (tmp_path / "relative").symlink_to("absolute")
    for command in ([tmp_path / "absolute"], [tmp_path / "relative"], ["sh", started / "pie-edge"]):
        done = subprocess.run([*command, "x"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == f"ran ['x'] in {tmp_path}\n", done.stderr


def test_a_users_folder_shadows_no_module_of_ours(started: Path, tmp_path: Path) -> None:
    (tmp_path / "pie_edge").mkdir()
    (tmp_path / "pie_edge/__init__.py").write_text("raise SystemExit('the wrong one')")
    assert start(started, "x", cwd=tmp_path).returncode == 0


def test_a_changed_pyproject_is_installed_and_the_environment_kept(checkout: Path) -> None:
    start(checkout)
    (checkout / ".venv/mine").touch()
    (checkout / "pyproject.toml").write_text(PYPROJECT + "# changed\n")
    assert "installing" in start(checkout).stderr
    assert start(checkout).stderr == ""


def test_an_interrupted_installation_is_done_again_from_the_start(checkout: Path) -> None:
    child = subprocess.Popen(
        [checkout / "pie-edge", "x"], env={**_environment(), "TINY_SECONDS": "60"}, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr
    while "installing" not in child.stderr.readline():
        pass
    child.kill()
    child.wait()
    child.stderr.close()
    assert not (checkout / ".venv/pie-edge/stamp").exists()
    (checkout / ".venv/half").touch()
    done = start(checkout, "x")
    assert done.stdout == f"ran ['x'] in {checkout}\n"
    assert not (checkout / ".venv/half").exists()


def test_of_two_starts_at_once_one_installs_and_both_run(checkout: Path) -> None:
    command = [str(checkout / "pie-edge"), "x"]
    environment = {**_environment(), "TINY_SECONDS": "1"}
    children = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in "12"
    ]
    told = [child.communicate(timeout=120) for child in children]
    assert [out.split(" in ")[0] for out, _ in told] == ["ran ['x']"] * 2, told
    assert sorted("waiting for another start" in error for _, error in told) == [False, True]
    assert installs(checkout) == 1


def test_a_moved_checkout_gets_a_new_environment(checkout: Path, tmp_path: Path) -> None:
    start(checkout)
    moved = checkout.rename(tmp_path / "moved")
    done = start(moved, "x")
    assert done.stdout == f"ran ['x'] in {moved}\n"
    assert "installing" in done.stderr


def test_an_environment_that_somebody_else_made_is_used_and_never_removed(checkout: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", checkout / ".venv"], check=True)
    (checkout / ".venv/theirs").touch()
    assert start(checkout, "x").returncode == 0
    (checkout / ".venv/pie-edge/stamp").unlink()
    assert start(checkout, "x").returncode == 0
    assert (checkout / ".venv/theirs").exists()


def test_without_ensurepip_the_systems_pip_is_lent(checkout: Path, tmp_path: Path) -> None:
    done = start(checkout, "x", variables=blocker(tmp_path / "blocked", "ensurepip", "virtualenv"))
    if shutil.which("uv") is None:
        assert "--target" in (checkout / ".venv/pie-edge/install.log").read_text()
    assert done.stdout == f"ran ['x'] in {checkout}\n", done.stderr


def test_a_python_that_can_make_no_environment_gets_the_remedy(checkout: Path, tmp_path: Path) -> None:
    variables = blocker(tmp_path / "blocked", "ensurepip", "virtualenv", "pip")
    variables["PATH"] = str(tools(tmp_path / "tools", python=sys.executable))
    done = start(checkout, "x", variables=variables)
    assert done.returncode == 1
    assert "can't make a virtual environment" in done.stderr
    assert "remedy: " in done.stderr
    assert "Traceback" not in done.stderr
    if Path("/etc/debian_version").exists():
        assert f"sudo apt install python3.{sys.version_info[1]}-venv" in done.stderr


def tools(folder: Path, python: str | None) -> Path:
    """A folder for PATH with what the scripts call, and a python3 or none."""
    folder.mkdir()
    for name in ("sh", "readlink", "cmp", "dirname", "cat"):
        (folder / name).symlink_to(shutil.which(name) or name)
    if python:
        (folder / "python3").symlink_to(os.path.realpath(python))
    return folder


def test_without_a_python_that_is_new_enough_the_message_says_which_is_needed(checkout: Path, tmp_path: Path) -> None:
    folder = tools(tmp_path / "tools", python=None)
    path = {"PATH": str(folder)}
    assert "needs Python 3.11 or newer, and here is no python3" in start(checkout, variables=path).stderr
    old = folder / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\n[ "$1" = --version ]\n')
    old.chmod(0o755)
    done = start(checkout, variables=path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs Python 3.11 or newer, and here is Python 3.9.2" in done.stderr


def test_what_cant_be_fetched_ends_with_pips_reason_a_remedy_and_the_log(checkout: Path) -> None:
    # Port 9 of this machine: nobody listens.
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull}
    needs = {"TINY_NEEDS": "some-package-that-is-needed", "PIP_EXTRA_INDEX_URL": ""}
    done = start(checkout, "x", variables=nowhere | needs)
    assert done.returncode == 1
    assert "could not be installed: ERROR: " in done.stderr
    assert "some-package-that-is-needed" in done.stderr
    assert "remedy: check the network" in done.stderr
    assert str(checkout / ".venv/pie-edge/install.log") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cant_be_written_is_told(checkout: Path) -> None:
    if os.geteuid() == 0:
        (checkout / ".venv.lock").mkdir()
    else:
        checkout.chmod(0o555)
    done = start(checkout, "x")
    assert done.returncode == 1
    assert "work in a folder you may write to" in done.stderr


def test_an_extra_is_added_to_what_is_installed(checkout: Path) -> None:
    start(checkout)
    subprocess.run(
        [checkout / "scripts/bootstrap", "--extra", "test"], env=_environment(), check=True, capture_output=True
    )
    installed = (checkout / ".venv/pie-edge/stamp").read_text().splitlines()[-1].split(",")
    # And those of the devices that this machine has drivers for.
    assert {"build", "server", "test"} <= set(installed)
    assert start(checkout).stderr == ""
