"""Which devices the Vulkan loader sees, asked through ctypes: no package is needed to look, but one to compute."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from pie_edge import remedies
from pie_edge.backend import Finding
from pie_edge.backends.shared import vulkan_loader
from pie_edge.backends.shared.host import unique
from pie_edge.backends.shared.vulkan_loader import API_VERSION_1_2, DeviceProperties, NoDriverError

NO_LOADER = "install the Vulkan loader and your GPU's driver (Debian: apt install libvulkan1 mesa-vulkan-drivers)"
DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""With one of these the loader looks at the drivers named there, and at no others."""
VECTOR_WIDTH = "LP_NATIVE_VECTOR_WIDTH"
"""Bits of llvmpipe's vectors, 32 for each invocation of a subgroup; without it they are as wide as the processor's."""
DEVICE_TYPE_CPU = 4
LEAST_SUBGROUP = 4
"""Invocations that a subgroup has to have: Mesa's software device falls down with two."""
_SUBGROUP_PROPERTIES, _PROPERTIES_2 = 1000094000, 1000059001


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
    _fields_ = (("type", ctypes.c_int), ("next", ctypes.c_void_p), ("properties", DeviceProperties))


def probe(open_library: Callable[[str], Any] = ctypes.CDLL) -> Finding:
    vulkan = vulkan_loader.loader(open_library)
    if vulkan is None:
        return Finding((), "no Vulkan loader", NO_LOADER)
    try:
        with vulkan_loader.devices(vulkan) as found:
            devices = _devices(vulkan, found)
    except NoDriverError as error:
        return Finding((), f"the Vulkan loader finds no driver ({error})", no_driver())
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
        return Finding((), f"{names[0]} is here but not the Python package vulkan", remedies.install("vulkan"))
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


def _devices(vulkan: Any, found: list[tuple[int | None, DeviceProperties]]) -> list[_Device]:
    names = unique(properties.name.decode("utf-8", "replace") for _, properties in found)
    return [
        _Device(name, properties.api_version, properties.type == DEVICE_TYPE_CPU, _subgroup(vulkan, handle, properties))
        for name, (handle, properties) in zip(names, found, strict=True)
    ]


def _subgroup(vulkan: Any, handle: int | None, plain: DeviceProperties) -> int:
    if plain.api_version < API_VERSION_1_2:
        return LEAST_SUBGROUP
    subgroup = _SubgroupProperties(_SUBGROUP_PROPERTIES)
    properties = _DeviceProperties2(_PROPERTIES_2, ctypes.addressof(subgroup))
    vulkan.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), ctypes.byref(properties))
    return int(subgroup.size)
