"""Programs by name: those that come with pie-edge, and those that clients installed."""

from __future__ import annotations

from pathlib import Path

from pie_edge import resources
from pie_edge.errors import ResourceError, UsageError

_MOST = 1000
_MOST_TEXT = 64 * 2**20
_LONGEST_NAME = 128


def builtin() -> dict[str, Path]:
    """Folders of ``inferlets/`` that are programs."""
    return {main.parent.name: main.parent for main in sorted(resources.inferlets().glob("*/main.py"))}


class Programs:
    def __init__(self) -> None:
        self._builtin = builtin()
        self._installed: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._builtin.keys() | self._installed.keys()))

    def install(self, name: str, source: str) -> None:
        """Raises UsageError for a name that is none or is taken by a built-in, ResourceError for too many."""
        if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or "/" in name or "\\" in name:
            raise UsageError(
                f"{name[:80]!r} is no name of a program; give 1 to {_LONGEST_NAME} printable characters without slashes"
            )
        if name in self._builtin:
            raise UsageError(f"{name!r} comes with pie-edge; install yours under another name")
        others = {other: text for other, text in self._installed.items() if other != name}
        if len(others) >= _MOST or sum(map(len, others.values())) + len(source) > _MOST_TEXT:
            raise ResourceError(
                f"{len(others)} programs are installed; the most is {_MOST}, of {_MOST_TEXT:,} characters in all. "
                "Send the source with the launch"
            )
        self._installed = {**others, name: source}

    def find(self, name: str) -> Path | str:
        """Its folder or its source. Raises UsageError."""
        if name in self._installed:
            return self._installed[name]
        if name not in self._builtin:
            raise UsageError(
                f"there is no program {name[:80]!r} here; there are {', '.join(self.names)}. Install it first, or name "
                "a file that is there"
            )
        return self._builtin[name]
