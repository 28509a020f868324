"""Which devices the Vulkan loader sees, asked through ctypes: no package is needed to look, but one to compute."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from pie_edge.backend import Finding

LIBRARIES = {
    "linux": ("libvulkan.so.1",),
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
}
REMEDY = "install the Vulkan loader and your GPU's driver (Debian: apt install libvulkan1 mesa-vulkan-drivers)"
PACKAGE_REMEDY = "pip install 'pie-edge[vulkan]'"
API_VERSION_1_1 = 1 << 22 | 1 << 12
APPLICATION_INFO, INSTANCE_CREATE_INFO = 0, 1
PORTABILITY_BIT = 1
DEVICE_TYPE_CPU = 4


class _ApplicationInfo(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("application", ctypes.c_char_p),
        ("application_version", ctypes.c_uint32),
        ("engine", ctypes.c_char_p),
        ("engine_version", ctypes.c_uint32),
        ("api_version", ctypes.c_uint32),
    )


class _InstanceCreateInfo(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.POINTER(_ApplicationInfo)),
        ("layer_count", ctypes.c_uint32),
        ("layers", ctypes.c_void_p),
        ("extension_count", ctypes.c_uint32),
        ("extensions", ctypes.POINTER(ctypes.c_char_p)),
    )


class _DeviceProperties(ctypes.Structure):
    """The head of VkPhysicalDeviceProperties; ``rest`` is room for what the driver writes after it (548 bytes)."""

    _fields_ = (
        ("api_version", ctypes.c_uint32),
        ("driver_version", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("type", ctypes.c_int),
        ("name", ctypes.c_char * 256),
        ("rest", ctypes.c_uint64 * 128),
    )


def probe(open_library: Callable[[str], Any] = ctypes.CDLL) -> Finding:
    vulkan = _loader(open_library)
    if vulkan is None:
        return Finding((), "no Vulkan loader", REMEDY)
    instance = ctypes.c_void_p()
    if status := vulkan.vkCreateInstance(ctypes.byref(_instance_info()), None, ctypes.byref(instance)):
        return Finding((), f"the Vulkan loader finds no driver (vkCreateInstance returned {status})", REMEDY)
    try:
        devices = _devices(vulkan, instance)
    finally:
        vulkan.vkDestroyInstance(instance, None)
    hardware = tuple(name for name, software in devices if not software)
    if not devices:
        return Finding((), "no Vulkan driver has a device", REMEDY)
    names = hardware or tuple(name for name, _ in devices)
    if find_spec("vulkan") is None:
        return Finding((), f"{names[0]} is here but not the Python package vulkan", PACKAGE_REMEDY)
    return Finding(names, software=not hardware)


def _loader(open_library: Callable[[str], Any]) -> Any:
    for name in LIBRARIES.get(sys.platform, LIBRARIES["linux"]):
        try:
            return open_library(name)
        except OSError:
            continue
    return None


def _instance_info() -> _InstanceCreateInfo:
    application = _ApplicationInfo(APPLICATION_INFO, None, b"pie-edge", 1, None, 0, API_VERSION_1_1)
    info = _InstanceCreateInfo(INSTANCE_CREATE_INFO, None, 0, ctypes.pointer(application), 0, None, 0, None)
    if sys.platform == "darwin":
        # The loader hides MoltenVK from whoever doesn't say that a portability driver will do.
        info.flags, info.extension_count = PORTABILITY_BIT, 1
        info.extensions = (ctypes.c_char_p * 1)(b"VK_KHR_portability_enumeration")
    return info


def _devices(vulkan: Any, instance: ctypes.c_void_p) -> list[tuple[str, bool]]:
    """Name and whether it is a software device, for each."""
    count = ctypes.c_uint32()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    found = []
    for handle in handles[: count.value]:
        properties = _DeviceProperties()
        vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), ctypes.byref(properties))
        found.append((properties.name.decode("utf-8", "replace"), properties.type == DEVICE_TYPE_CPU))
    return found
