"""What kernels move and compute, on paper and on the emulator: ``python -m benchmarks.roofline [--write]``.

On paper: of each hot kernel, at the shapes of a model of 8 B parameters, the bytes that it has to move, the operations that it
does on the unit which does most of them, and the time that a device's data sheet leaves it. On the emulator: the sectors of 32
bytes that each warp's access touches, and the turns that accesses to shared memory take, of the CUDA backend's kernels run on the
CPU. ``--write`` puts all of it into ``docs/backends.md``; tests compare them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.paper import cuda, metal
from benchmarks.paper.work import told

PAGE = Path(__file__).resolve().parent.parent / "docs" / "backends.md"


def _counts() -> str:
    from benchmarks.paper.counts import counts

    return counts()


SECTIONS: Mapping[str, Callable[[], str]] = {
    "cuda on paper": lambda: told(cuda.works(), cuda.CARDS),
    "cuda on the emulator": _counts,
    "metal on paper": lambda: told(metal.works(), metal.CHIPS),
}
"""Tables of the page, by the name that its markers have. The emulator's takes g++ on x86-64."""


def rendered(section: str) -> str:
    """As it is on the page, with its markers."""
    begin, end = _markers(section)
    return f"{begin}\n{SECTIONS[section]()}\n{end}"


def written(page: str, section: str) -> str:
    """What a page has between a section's markers, with them. Raises ValueError where it lacks one."""
    begin, end = _markers(section)
    return page[page.index(begin) : page.index(end) + len(end)]


def _markers(section: str) -> tuple[str, str]:
    return f"<!-- {section}: python -m benchmarks.roofline --write -->", f"<!-- end of {section} -->"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/backends.md")
    asked = parser.parse_args(argv)
    for section in SECTIONS:
        found = rendered(section)
        print(found)
        if asked.write:
            page = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(page.replace(written(page, section), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
