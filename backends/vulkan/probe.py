"""Which devices the Vulkan loader sees, asked through ctypes: no package is needed to look, but one to compute."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from pie_edge.backend import Finding
from pie_edge.backends.shared.host import unique

LIBRARIES = {
    "linux": ("libvulkan.so.1",),
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
}
NO_LOADER = "install the Vulkan loader and your GPU's driver (Debian: apt install libvulkan1 mesa-vulkan-drivers)"
DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""With one of these the loader looks at the drivers named there, and at no others."""
VECTOR_WIDTH = "LP_NATIVE_VECTOR_WIDTH"
"""Bits of llvmpipe's vectors, 32 for each invocation of a subgroup; without it they are as wide as the processor's."""
PACKAGE_REMEDY = "pip install 'pie-edge[vulkan]'"
API_VERSION_1_1 = 1 << 22 | 1 << 12
API_VERSION_1_2 = 1 << 22 | 2 << 12
APPLICATION_INFO, INSTANCE_CREATE_INFO = 0, 1
PORTABILITY_BIT = 1
DEVICE_TYPE_CPU = 4
LEAST_SUBGROUP = 4
"""Invocations that a subgroup has to have: Mesa's software device falls down with two."""
_SUBGROUP_PROPERTIES, _PROPERTIES_2 = 1000094000, 1000059001


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


class _SubgroupProperties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("size", ctypes.c_uint32),
        ("stages", ctypes.c_uint32),
        ("operations", ctypes.c_uint32),
        ("quads", ctypes.c_uint32),
    )


class _DeviceProperties2(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("next", ctypes.c_void_p), ("properties", _DeviceProperties))


def probe(open_library: Callable[[str], Any] = ctypes.CDLL) -> Finding:
    vulkan = _loader(open_library)
    if vulkan is None:
        return Finding((), "no Vulkan loader", NO_LOADER)
    instance = ctypes.c_void_p()
    if status := vulkan.vkCreateInstance(ctypes.byref(_instance_info()), None, ctypes.byref(instance)):
        return Finding((), f"the Vulkan loader finds no driver (vkCreateInstance returned {status})", no_driver())
    try:
        devices = _devices(vulkan, instance)
    finally:
        vulkan.vkDestroyInstance(instance, None)
    return _finding(devices, installed=find_spec("vulkan") is not None)


def _finding(devices: list[_Device], *, installed: bool) -> Finding:
    usable = [device for device in devices if not device.refusal]
    if not devices:
        return Finding((), "no Vulkan driver has a device", no_driver())
    if not usable:
        return Finding((), f"{devices[0].name} {devices[0].refusal}", no_use(devices[0].software))
    hardware = tuple(device.name for device in usable if not device.software)
    software = tuple(device.name for device in usable if device.software)
    if not installed:
        names = hardware or software
        return Finding((), f"{names[0]} is here but not the Python package vulkan", PACKAGE_REMEDY)
    return Finding(hardware or software, software=not hardware, spare=software if hardware else ())


def no_driver(environment: Mapping[str, str] = os.environ) -> str:
    """What helps where the loader finds no device."""
    named = [f"{name} ({environment[name]} here)" for name in DRIVER_VARIABLES if environment.get(name)]
    if not named:
        return NO_LOADER
    return f"unset {' and '.join(named)}, or name a driver that is installed there"


def no_use(software: bool, environment: Mapping[str, str] = os.environ) -> str:
    """What helps where the devices that there are can do too little."""
    if software and (bits := environment.get(VECTOR_WIDTH)):
        return f"unset {VECTOR_WIDTH} ({bits} here), or set it to {32 * LEAST_SUBGROUP} or more"
    return "update the GPU's driver"


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


class _Device(NamedTuple):
    name: str
    """Unique: the second of two equal cards is ``NAME (2)``."""
    api: int
    software: bool
    subgroup: int = LEAST_SUBGROUP
    """Invocations of one; of an old device, which can't be asked, this."""

    @property
    def refusal(self) -> str:
        """What it has too little of, if anything."""
        if self.api < API_VERSION_1_2:
            return f"has Vulkan {self.api >> 22 & 127}.{self.api >> 12 & 1023}, 1.2 is needed"
        return narrow_subgroups(self.subgroup)


def narrow_subgroups(size: int) -> str:
    return f"has subgroups of {size}, {LEAST_SUBGROUP} are needed" if size < LEAST_SUBGROUP else ""


def _devices(vulkan: Any, instance: ctypes.c_void_p) -> list[_Device]:
    count = ctypes.c_uint32()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    found = []
    for handle in handles[: count.value]:
        properties = _DeviceProperties()
        vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), ctypes.byref(properties))
        subgroup = _subgroup(vulkan, handle) if properties.api_version >= API_VERSION_1_2 else LEAST_SUBGROUP
        found.append((properties, subgroup))
    names = unique(properties.name.decode("utf-8", "replace") for properties, _ in found)
    return [
        _Device(name, properties.api_version, properties.type == DEVICE_TYPE_CPU, subgroup)
        for name, (properties, subgroup) in zip(names, found, strict=True)
    ]


def _subgroup(vulkan: Any, handle: int | None) -> int:
    subgroup = _SubgroupProperties(_SUBGROUP_PROPERTIES)
    properties = _DeviceProperties2(_PROPERTIES_2, ctypes.addressof(subgroup))
    vulkan.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), ctypes.byref(properties))
    return int(subgroup.size)
