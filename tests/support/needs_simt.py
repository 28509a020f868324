"""Imported by tests whose kernels run on the emulator: skips them, with the reason, where it can't be built."""

import os

import pytest

from tests.simt.build import COMPILER, available

if os.environ.get("PIE_EDGE_TEST_CUDA") != "card" and not available():
    pytest.skip(f"the emulator of CUDA kernels takes {COMPILER} on x86-64", allow_module_level=True)
