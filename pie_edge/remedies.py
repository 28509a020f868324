"""What installs a missing package here: in a checkout pie-edge comes from no index, but from the folder itself."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout, where this is one: a wheel's packages have no pyproject.toml beside them."""


def install(extra: str, *, root: Path = ROOT, prefix: str = sys.prefix, folder: Path | None = None) -> str:
    """The command that installs what an optional part needs (``wgpu``, ``server``, …), as one types it in ``folder``, which is
    the current one: paths are short where that is the checkout."""
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'pie-edge[{extra}]'"
    if Path(prefix) != root / ".venv":
        pip = f"{shlex.quote(sys.executable)} -m pip"
    else:
        pip = shlex.quote(str(_short(Path(prefix, "Scripts" if os.name == "nt" else "bin", "pip"), root, folder)))
    return f"{pip} install -e {shlex.quote(f'{_short(root, root, folder)}[{extra}]')}"


def _short(path: Path, root: Path, folder: Path | None) -> Path:
    return path.relative_to(root) if (folder or Path.cwd()) == root else path
