"""Importing this skips a test module, saying why, where there is no Vulkan device: ``pytest.importorskip`` it first."""

from __future__ import annotations

import pytest

from pie_edge.backends.vulkan.probe import probe

_found = probe()
if not _found.devices:
    pytest.skip(f"needs a Vulkan device: {_found.reason}; {_found.remedy}", allow_module_level=True)
