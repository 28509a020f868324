"""A Vulkan device: which there are, the one that is used, its queue, and the facts that kernels are chosen by."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

from pie_edge.backends.shared.host import unique
from pie_edge.backends.vulkan.api import API_1_2, Handle, check, ffi, lib, make, version_text, vk
from pie_edge.backends.vulkan.probe import narrow_subgroups, no_driver, no_use
from pie_edge.errors import BackendUnavailable

_CPU = 4
_INTEGRATED = 1
_COMPUTE_BIT = 2
_ARITHMETIC = 0x1 | 0x4
"""Basic and arithmetic subgroup operations."""
_PORTABILITY_ENUMERATION = "VK_KHR_portability_enumeration"
_PORTABILITY_SUBSET = "VK_KHR_portability_subset"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a physical device says of itself. Sizes are bytes."""

    name: str
    driver: str
    """The driver's name and version."""
    api: int
    software: bool
    unified: bool
    """It shares the host's memory: weights are written straight into it."""
    memory: int
    """Of its largest device-local heap."""
    max_binding: int
    offset_alignment: int
    """Of a storage buffer's offset within its VkBuffer."""
    shared_memory: int
    max_invocations: int
    """Of a workgroup."""
    max_groups: tuple[int, int, int]
    push_constants: int
    subgroup: int
    """Invocations of a subgroup."""
    subgroup_arithmetic: bool
    preserves_special: bool
    """A shader may ask that infinities, NaNs and signed zeros of float32 are kept."""
    texels: int
    """The most of a buffer that is bound as texels."""
    timestamp_period: float
    """Nanoseconds a tick; 0 where the queue has no timestamps."""
    heaps: tuple[tuple[int, bool], ...]
    """Sizes, and whether each is local to the device."""
    float16: bool
    """Shaders may compute with it, as with ``int8``. Our kernels need neither: they unpack and compute in float32."""
    int8: bool
    cache_key: str
    """Changes whenever compiled pipelines are no longer usable."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """An open device with one compute queue. ``close`` when nothing runs and all that was made of it is destroyed."""

    facts: Facts
    instance: Handle
    physical: Handle
    device: Handle
    queue: Handle
    family: int
    memory: Handle
    """VkPhysicalDeviceMemoryProperties."""

    def close(self) -> None:
        lib.vkDestroyDevice(self.device, ffi.NULL)
        lib.vkDestroyInstance(self.instance, ffi.NULL)


def open_gpu(name: str = "") -> Gpu:
    """Open the device of this name, or the first that will do. Raises BackendUnavailable with each device's fault."""
    instance = _instance()
    try:
        refused, software = [], False
        for physical, facts, reason in _look(instance):
            if name and facts.name != name:
                continue
            if not reason:
                return _open(instance, physical, facts)
            refused.append(f"{facts.name}: {reason}")
            software |= facts.software
    except BaseException:
        lib.vkDestroyInstance(instance, ffi.NULL)
        raise
    lib.vkDestroyInstance(instance, ffi.NULL)
    why = "; ".join(refused) or f"no device is called {name!r}"
    remedy = no_use(software) if refused else "`pie-edge doctor` tells which there are" if name else no_driver()
    raise BackendUnavailable(f"backend vulkan can't use this machine's devices ({why}); {remedy}")


def survey() -> list[tuple[Facts, str]]:
    """What all devices say of themselves, and why one can't be used, if it can't. Leaves nothing open."""
    instance = _instance()
    try:
        return [(facts, reason) for _, facts, reason in _look(instance)]
    finally:
        lib.vkDestroyInstance(instance, ffi.NULL)


def _look(instance: Handle) -> list[tuple[Handle, Facts, str]]:
    """Each device with its facts, named so that it can be asked for; and why it can't be used, if it can't."""
    seen = [(physical, *_look_at(physical)) for physical in _physical_devices(instance)]
    names = unique(facts.name for _, facts, _ in seen)
    return [
        (physical, replace(facts, name=name), reason)
        for (physical, facts, reason), name in zip(seen, names, strict=True)
    ]


def _instance() -> Handle:
    application = vk.VkApplicationInfo(
        pApplicationName="pie-edge", applicationVersion=1, pEngineName="pie-edge", engineVersion=1, apiVersion=API_1_2
    )
    portable = sys.platform == "darwin"
    info = vk.VkInstanceCreateInfo(
        flags=1 if portable else 0,
        pApplicationInfo=application,
        ppEnabledExtensionNames=[_PORTABILITY_ENUMERATION] if portable else [],
    )
    return make("start", lib.vkCreateInstance, "VkInstance", ffi.addressof(info), ffi.NULL)


def _physical_devices(instance: Handle) -> list[Handle]:
    count = ffi.new("uint32_t*")
    check(lib.vkEnumeratePhysicalDevices(instance, count, ffi.NULL), "list its devices")
    found = ffi.new("VkPhysicalDevice[]", count[0])
    check(lib.vkEnumeratePhysicalDevices(instance, count, found), "list its devices")
    return list(found)


def _look_at(physical: Handle) -> tuple[Facts, str]:
    """A device's facts, and why it can't be used, if it can't."""
    plain = ffi.new("VkPhysicalDeviceProperties*")
    lib.vkGetPhysicalDeviceProperties(physical, plain)
    if plain.apiVersion < API_1_2:
        # The structures below came with 1.2: the loader may not know how to ask for them.
        facts = _facts(plain, None, None, None, 0, None, None)
        return facts, f"it has Vulkan {version_text(plain.apiVersion)}, 1.2 is needed"
    subgroup = ffi.new("VkPhysicalDeviceSubgroupProperties*")
    subgroup.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES
    controls = ffi.new("VkPhysicalDeviceFloatControlsProperties*")
    controls.sType, controls.pNext = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES, subgroup
    driver = ffi.new("VkPhysicalDeviceDriverProperties*")
    driver.sType, driver.pNext = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, controls
    properties = ffi.new("VkPhysicalDeviceProperties2*")
    properties.sType, properties.pNext = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, driver
    lib.vkGetPhysicalDeviceProperties2(physical, properties)
    family, timestamps = _compute_family(physical)
    memory = _memory(physical)
    facts = _facts(properties.properties, subgroup, controls, driver, timestamps, memory, _narrow_types(physical))
    if family < 0:
        return facts, "it has no compute queue"
    if narrow := narrow_subgroups(subgroup.subgroupSize):
        return facts, f"it {narrow}"
    return facts, "" if _has_timeline(physical) else "it has no timeline semaphores"


def _facts(
    properties: Any, subgroup: Any, controls: Any, driver: Any, timestamps: int, memory: Any, narrow: Any
) -> Facts:
    limits = properties.limits
    named = "" if driver is None else f"{_text(driver.driverName)} {_text(driver.driverInfo)}".strip()
    arithmetic = (
        subgroup is not None
        and subgroup.supportedStages & vk.VK_SHADER_STAGE_COMPUTE_BIT != 0
        and subgroup.supportedOperations & _ARITHMETIC == _ARITHMETIC
    )
    return Facts(
        name=_text(properties.deviceName),
        driver=named or f"driver {properties.driverVersion}",
        api=properties.apiVersion,
        software=properties.deviceType == _CPU,
        unified=properties.deviceType in (_CPU, _INTEGRATED),
        memory=0 if memory is None else _largest_heap(memory),
        max_binding=limits.maxStorageBufferRange,
        offset_alignment=limits.minStorageBufferOffsetAlignment,
        shared_memory=limits.maxComputeSharedMemorySize,
        max_invocations=limits.maxComputeWorkGroupInvocations,
        max_groups=tuple(limits.maxComputeWorkGroupCount),
        push_constants=limits.maxPushConstantsSize,
        subgroup=subgroup.subgroupSize if arithmetic else 0,
        subgroup_arithmetic=arithmetic,
        preserves_special=controls is not None and bool(controls.shaderSignedZeroInfNanPreserveFloat32),
        texels=limits.maxTexelBufferElements,
        timestamp_period=limits.timestampPeriod if timestamps else 0.0,
        heaps=() if memory is None else _heaps(memory),
        float16=bool(narrow and narrow.shaderFloat16),
        int8=bool(narrow and narrow.shaderInt8),
        cache_key=f"{bytes(properties.pipelineCacheUUID).hex()}-{properties.vendorID:x}-{properties.deviceID:x}"
        f"-{properties.driverVersion:x}-{subgroup.subgroupSize if arithmetic else 0}",
    )


def _text(characters: Any) -> str:
    return str(ffi.string(characters).decode("utf-8", "replace"))


def _compute_family(physical: Handle) -> tuple[int, int]:
    """The queue family with compute, −1 if none, and its timestamp bits. One without graphics is taken if there is one:
    the desktop's own work doesn't wait there."""
    count = ffi.new("uint32_t*")
    lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, ffi.NULL)
    families = ffi.new("VkQueueFamilyProperties[]", count[0])
    lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, families)
    found = [i for i in range(count[0]) if families[i].queueFlags & _COMPUTE_BIT]
    if not found:
        return -1, 0
    best = min(found, key=lambda i: families[i].queueFlags & 1)
    return best, families[best].timestampValidBits


def _memory(physical: Handle) -> Handle:
    memory = ffi.new("VkPhysicalDeviceMemoryProperties*")
    lib.vkGetPhysicalDeviceMemoryProperties(physical, memory)
    return memory


def _heaps(memory: Any) -> tuple[tuple[int, bool], ...]:
    heaps = (memory.memoryHeaps[i] for i in range(memory.memoryHeapCount))
    return tuple((int(heap.size), bool(heap.flags & 1)) for heap in heaps)


def _largest_heap(memory: Any) -> int:
    return max((size for size, local in _heaps(memory) if local), default=0)


def _narrow_types(physical: Handle) -> Any:
    narrow = ffi.new("VkPhysicalDeviceShaderFloat16Int8Features*")
    narrow.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES
    features = ffi.new("VkPhysicalDeviceFeatures2*")
    features.sType, features.pNext = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, narrow
    lib.vkGetPhysicalDeviceFeatures2(physical, features)
    return narrow


def _has_timeline(physical: Handle) -> bool:
    timeline = ffi.new("VkPhysicalDeviceTimelineSemaphoreFeatures*")
    timeline.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES
    features = ffi.new("VkPhysicalDeviceFeatures2*")
    features.sType, features.pNext = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, timeline
    lib.vkGetPhysicalDeviceFeatures2(physical, features)
    return bool(timeline.timelineSemaphore)


def _open(instance: Handle, physical: Handle, facts: Facts) -> Gpu:
    family, _ = _compute_family(physical)
    queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, queueCount=1, pQueuePriorities=[1.0])
    timeline = vk.VkPhysicalDeviceTimelineSemaphoreFeatures(timelineSemaphore=1)
    # A device that offers the portability subset (MoltenVK) must be opened with it.
    extensions = [_PORTABILITY_SUBSET] if _PORTABILITY_SUBSET in _extensions(physical) else []
    info = vk.VkDeviceCreateInfo(pNext=timeline, pQueueCreateInfos=[queue], ppEnabledExtensionNames=extensions)
    device = make(f"open {facts.name}", lib.vkCreateDevice, "VkDevice", physical, ffi.addressof(info), ffi.NULL)
    found = ffi.new("VkQueue*")
    lib.vkGetDeviceQueue(device, family, 0, found)
    return Gpu(facts, instance, physical, device, found[0], family, _memory(physical))


def _extensions(physical: Handle) -> set[str]:
    count = ffi.new("uint32_t*")
    check(lib.vkEnumerateDeviceExtensionProperties(physical, ffi.NULL, count, ffi.NULL), "list its extensions")
    found = ffi.new("VkExtensionProperties[]", count[0])
    check(lib.vkEnumerateDeviceExtensionProperties(physical, ffi.NULL, count, found), "list its extensions")
    return {_text(extension.extensionName) for extension in found}
