"""What doctor tells of a Vulkan device."""

from __future__ import annotations

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
