"""Importing this skips a test module, saying why, where MLX isn't: ``pytest.importorskip`` it first."""

from __future__ import annotations

import os

import pytest

from pie_edge.backends.metal.probe import probe

# Tests of one process open exact backends and others: MLX settles how it multiplies floats at its first product.
os.environ["MLX_ENABLE_TF32"] = "0"
_found = probe()
if not _found.devices:
    pytest.skip(f"needs MLX: {_found.reason}; {_found.remedy}", allow_module_level=True)
