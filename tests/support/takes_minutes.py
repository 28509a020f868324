"""Importing this skips the module: what takes minutes on a software device runs where it is asked for."""

import os

import pytest

if os.environ.get("PIE_EDGE_TEST_VULKAN") != "1":
    pytest.skip("minutes on a software device; PIE_EDGE_TEST_VULKAN=1 runs it", allow_module_level=True)
