"""Where things lie that can be made again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``PIE_EDGE_CACHE``, or the platform's folder for caches. May not exist yet."""
    if chosen := environment.get("PIE_EDGE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pie-edge" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pie-edge"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pie-edge"
