"""Where the files are that travel with the package and are no Python of ours: the WIT contract, SDK sources, shaders.

In a checkout they lie beside ``pie_edge/``; a wheel has them inside it (see ``docs/decisions/001-package-layout.md``).
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def inferlets() -> Path:
    """The folder with ``wit/`` and ``sdk/``."""
    return _folder("inferlets")
