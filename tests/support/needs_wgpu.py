"""Importing this skips a test module, saying why, where wgpu finds no adapter: ``pytest.importorskip`` it first."""

from __future__ import annotations

import pytest

from pie_edge.backends.wgpu.probe import probe

_found = probe()
if not _found.devices:
    pytest.skip(f"needs a wgpu adapter: {_found.reason}; {_found.remedy}", allow_module_level=True)
