"""Which adapters wgpu-native sees, if it is installed."""

from __future__ import annotations

import importlib
import importlib.util

from pie_edge.backend import Finding


def probe() -> Finding:
    if importlib.util.find_spec("wgpu") is None:
        return Finding((), "wgpu is not installed", "pip install 'pie-edge[wgpu]'")
    try:
        adapters = importlib.import_module("wgpu").gpu.enumerate_adapters_sync()
    except Exception as error:  # wgpu-native raises classes of its own, and OSError where its library doesn't load
        return Finding((), f"wgpu doesn't start: {error}", "install a Vulkan, Metal or Direct3D 12 driver")
    hardware = tuple(str(adapter.info["device"]) for adapter in adapters if adapter.info["adapter_type"] != "CPU")
    software = tuple(str(adapter.info["device"]) for adapter in adapters if adapter.info["adapter_type"] == "CPU")
    if not hardware and not software:
        return Finding((), "wgpu finds no adapter", "install a Vulkan, Metal or Direct3D 12 driver")
    return Finding(hardware or software, software=not hardware)
