"""Our wheel, built from a copy of the checkout, since building leaves folders behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "node_modules"
)
WHEEL = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "wheel", "--quiet", "--no-deps"]


def build_wheel(folder: Path) -> Path:
    """Builds it inside of ``folder``, and says where it is. Takes half a minute: the language component is built too."""
    source, target = folder / "source", folder / "dist"
    shutil.copytree(ROOT, source, ignore=LEFT_OUT)
    subprocess.run([*WHEEL, "--wheel-dir", target, source], check=True, timeout=240)
    [built] = target.glob("*.whl")
    return built
