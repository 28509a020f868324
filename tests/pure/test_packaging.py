"""What stands in two places because tools read it there is the same in both."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from pie_edge import __version__, resources
from pie_edge.backends.cuda.api import REQUIRED
from pie_edge.host.language import COMPONENTIZE

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SCRIPTS = ("pie-edge", "scripts/bootstrap", "scripts/test", "scripts/check", "scripts/debian-packages", ".ci/run")


def test_the_version_is_stated_once_more_in_the_package() -> None:
    assert PROJECT["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_component_is_built_by_the_version_that_is_installed_for_it() -> None:
    assert EXTRAS["build"] == [f"componentize-py=={COMPONENTIZE}"]


def test_all_is_every_extra_of_users() -> None:
    [everything] = EXTRAS["all"]
    assert set(re.findall(r"\w+", everything.partition("[")[2])) == EXTRAS.keys() - {"all", "build", "test"}


def test_what_compiles_cuda_s_kernels_is_of_the_version_that_the_oldest_driver_serves() -> None:
    """What a newer one makes it need not load, nor need that know the oldest cards."""
    major = REQUIRED // 1000
    limited = [re.fullmatch(rf"([\w-]+)>={major}\.\d+,<{major + 1}; .*", wanted) for wanted in EXTRAS["cuda"]]
    assert [found and found[1] for found in limited] == ["cuda-bindings", "nvidia-cuda-nvrtc"]


def test_the_bootstraps_format_is_the_same_in_the_shell_and_in_python() -> None:
    [python] = re.findall(
        r'^FORMAT = "(\w+)"$', (ROOT / "scripts/bootstrap.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    [shell] = re.findall(r'"\$format" = (\w+)', (ROOT / "pie-edge").read_text(encoding="utf-8"))
    assert python == shell


def test_the_package_finds_the_contract_and_the_sdk() -> None:
    assert (resources.inferlets() / "wit/world.wit").is_file()
    assert (resources.inferlets() / "sdk/python/inferlet/__init__.py").is_file()


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither run bits nor sh")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_executable_and_parses(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    shell = "bash" if "bash" in (ROOT / name).read_text(encoding="utf-8").splitlines()[0] else "sh"
    subprocess.run([shell, "-n", ROOT / name], check=True)
