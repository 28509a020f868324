"""Vulkan's loader through ctypes: enough to look at a machine's devices without any package."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LIBRARIES = {
    "linux": ("libvulkan.so.1",),
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
}
API_VERSION_1_1 = 1 << 22 | 1 << 12
API_VERSION_1_2 = 1 << 22 | 2 << 12
_APPLICATION_INFO, _INSTANCE_CREATE_INFO = 0, 1
_PORTABILITY_BIT = 1
_ON_DEVICE = 1


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


class DeviceProperties(ctypes.Structure):
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


class _Heap(ctypes.Structure):
    _fields_ = (("nbytes", ctypes.c_uint64), ("flags", ctypes.c_uint32))


class _MemoryProperties(ctypes.Structure):
    _fields_ = (
        ("type_count", ctypes.c_uint32),
        ("types", ctypes.c_uint32 * 64),
        ("heap_count", ctypes.c_uint32),
        ("heaps", _Heap * 16),
    )


class NoDriverError(Exception):
    """The loader makes no instance."""


def loader(open_library: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """The library, or None."""
    for name in LIBRARIES.get(sys.platform, LIBRARIES["linux"]):
        try:
            return open_library(name)
        except OSError:
            continue
    return None


@contextmanager
def devices(vulkan: Any) -> Iterator[list[tuple[int | None, DeviceProperties]]]:
    """Handles of the physical devices with their properties, within an instance. Raises NoDriverError."""
    instance = ctypes.c_void_p()
    if status := vulkan.vkCreateInstance(ctypes.byref(_instance_info()), None, ctypes.byref(instance)):
        raise NoDriverError(f"vkCreateInstance returned {status}")
    try:
        yield _devices(vulkan, instance)
    finally:
        vulkan.vkDestroyInstance(instance, None)


def _devices(vulkan: Any, instance: ctypes.c_void_p) -> list[tuple[int | None, DeviceProperties]]:
    count = ctypes.c_uint32()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    found = []
    for handle in handles[: count.value]:
        properties = DeviceProperties()
        vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), ctypes.byref(properties))
        found.append((handle, properties))
    return found


def card_memory(vendor: int, device: int, open_library: Callable[[str], Any] = ctypes.CDLL) -> int | None:
    """Bytes of the largest heap of its own that the device with these PCI numbers has, if Vulkan knows it."""
    vulkan = loader(open_library)
    if vulkan is None:
        return None
    try:
        with devices(vulkan) as found:
            return next((_own(vulkan, h) for h, one in found if (one.vendor, one.device) == (vendor, device)), None)
    except NoDriverError:
        return None


def _own(vulkan: Any, handle: int | None) -> int | None:
    memory = _MemoryProperties()
    vulkan.vkGetPhysicalDeviceMemoryProperties(ctypes.c_void_p(handle), ctypes.byref(memory))
    heaps = memory.heaps[: memory.heap_count]
    return max((heap.nbytes for heap in heaps if heap.flags & _ON_DEVICE), default=None)


def _instance_info() -> _InstanceCreateInfo:
    application = _ApplicationInfo(_APPLICATION_INFO, None, b"pie-edge", 1, None, 0, API_VERSION_1_1)
    info = _InstanceCreateInfo(_INSTANCE_CREATE_INFO, None, 0, ctypes.pointer(application), 0, None, 0, None)
    if sys.platform == "darwin":
        # The loader hides MoltenVK from whoever doesn't say that a portability driver will do.
        info.flags, info.extension_count = _PORTABILITY_BIT, 1
        info.extensions = (ctypes.c_char_p * 1)(b"VK_KHR_portability_enumeration")
    return info
