"""What doctor tells of a Vulkan device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pie_edge import backend_choice

pytest.importorskip("tests.support.needs_vulkan")


def test_a_device_is_told_with_its_driver_heaps_subgroups_and_narrow_types() -> None:
    told = "\n".join(backend_choice.describe("vulkan"))
    for name in backend_choice.probe("vulkan").devices:
        assert name in told
    for fact in ("Vulkan 1.", "GiB on the device", "subgroup", "arithmetic", "largest binding"):
        assert fact in told


def test_a_refused_device_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from pie_edge.backends.vulkan import device

    monkeypatch.setattr(device, "_has_timeline", lambda physical: False)
    assert any("refused: it has no timeline semaphores" in line for line in backend_choice.describe("vulkan"))


@pytest.mark.skipif("llvmpipe" not in str(backend_choice.probe("vulkan").devices), reason="its width is Mesa's to set")
def test_a_device_of_two_wide_subgroups_is_refused_by_name_before_anything_runs_on_it() -> None:
    """Mesa's compiler falls down with them, and takes the process with it."""
    script = """
from pie_edge import backend_choice
from pie_edge.backends.vulkan.device import open_gpu
from pie_edge.errors import BackendUnavailable
found = backend_choice.probe("vulkan")
print(found.reason, found.remedy)
print(*backend_choice.describe("vulkan"))
try:
    open_gpu()
except BackendUnavailable as error:
    print(error)
"""
    narrow = os.environ | {"LP_NATIVE_VECTOR_WIDTH": "64"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=narrow, check=True)
    probed, described, opened = done.stdout.splitlines()
    for told in (probed, described, opened):
        assert "llvmpipe" in told
        assert "has subgroups of 2, 4 are needed" in told
    for told in (probed, opened):
        assert told.endswith("unset LP_NATIVE_VECTOR_WIDTH (64 here), or set it to 128 or more")
