"""Importing this skips a test module, saying why, where MLX isn't: ``pytest.importorskip`` it first."""

from __future__ import annotations

import pytest

from pie_edge.backends.metal.probe import probe

_found = probe()
if not _found.devices:
    pytest.skip(f"needs MLX: {_found.reason}; {_found.remedy}", allow_module_level=True)
