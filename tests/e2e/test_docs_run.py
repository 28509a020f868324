"""What the documents show is run: console blocks print what stands there, and shown programs are the files of the tree.

In a ``console`` block, ``$`` begins a command and what follows is its standard output; a line ``…`` stands for any lines.
Lines that begin with ``pie-edge:`` are notes on standard error, which differ by machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pie_edge.config import load
from tests.e2e.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """Every block of a language: where it is, and its text."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] == language:
                line = text.count("\n", 0, block.start()) + 1
                found.append((f"{page.relative_to(ROOT)}:{line}", block[2]))
    return found


def sessions(block: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block and what each is said to print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        while lines[0].endswith("\\\n"):
            lines[:2] = [lines[0][:-2].rstrip() + " " + lines[1].lstrip()]
        yield lines[0].strip(), "".join(line for line in lines[1:] if not line.startswith("pie-edge:")).strip()


@pytest.mark.parametrize(("place", "block"), blocks("console"))
def test_a_console_block_prints_what_it_shows(place: str, block: str) -> None:
    for command, shown in sessions(block):
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        pattern = "".join("(?:.*\n)?" if line == "…" else re.escape(f"{line}\n") for line in shown.splitlines())
        assert re.fullmatch(pattern, done.stdout.strip() + "\n", re.DOTALL), (
            f"{place}: {command}\n{done.stdout}\n{done.stderr}"
        )


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    shown = [block for place, block in blocks("python") if place.startswith("README.md")]
    assert (ROOT / "inferlets/quickstart/main.py").read_text(encoding="utf-8") in shown


@pytest.mark.parametrize(("place", "block"), blocks("python"))
def test_a_shown_program_runs(place: str, block: str, cli: Cli, tmp_path: Path) -> None:
    """As a guest if it uses the SDK, which is there alone; with ours, as a file, of which functions are sent."""
    (tmp_path / "shown.py").write_text(block, encoding="utf-8")
    if "inferlet" in block and "pie_edge" not in block:
        done = cli("run", "shown.py", "--", "--prompt", "Is water wet?")
    else:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "shown.py")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, f"{place}\n{done.stderr}"


@pytest.mark.parametrize(("place", "block"), blocks("toml"))
def test_a_shown_configuration_is_accepted(place: str, block: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(block, encoding="utf-8")
    found = load(environment={"PIE_EDGE_CONFIG": str(tmp_path / "config.toml")})
    assert set(found.origins.values()) != {"default"}, f"{place} sets nothing"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_tree_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", text) + re.findall(
        r"`((?:docs|inferlets|scripts|benchmarks)/[\w./-]+)`", text
    )
    missing = [
        target
        for target in targets
        if "://" not in target and not (page.parent / target).exists() and not (ROOT / target).exists()
    ]
    assert not missing
