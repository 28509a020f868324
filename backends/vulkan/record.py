"""Command buffers: launches and copies recorded once, with a barrier wherever one touches what another wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pie_edge.backends.vulkan.api import Handle, check, ffi, lib, make, vk
from pie_edge.backends.vulkan.device import Gpu
from pie_edge.backends.vulkan.launch import Access, Binding, Launch
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.pipelines import STORAGE_BUFFER, TEXEL_BUFFER, Pipeline, Pipelines
from pie_edge.errors import BackendError

_COMPUTE = 1
"""The bind point."""
_COMPUTE_STAGE = 0x20
_DRAW_INDIRECT, _COMPUTE_SHADER, _TRANSFER, _HOST = 0x2, 0x800, 0x1000, 0x4000
_INDIRECT_READ, _SHADER_READ, _SHADER_WRITE = 0x1, 0x20, 0x40
_TRANSFER_READ, _TRANSFER_WRITE, _HOST_READ = 0x800, 0x1000, 0x2000


@dataclass(frozen=True, slots=True)
class Bound:
    """A launch with its pipeline and its descriptor set."""

    launch: Launch
    pipeline: Pipeline
    descriptors: Handle
    """VkDescriptorSet[1]."""


class BoundLaunches:
    """Launches ready to be recorded any number of times. Raises BackendError for a launch beyond the device's limits."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, launches: Sequence[Launch]) -> None:
        self._gpu = gpu
        for launch in launches:
            _check(gpu, launch)
        pipelines.prepare(launches)
        made = [pipelines.of(launch) for launch in launches]
        self._views: list[Handle] = []
        self._pool = _descriptor_pool(gpu, launches) if launches else None
        sets = [self._describe(launch, pipeline) for launch, pipeline in zip(launches, made, strict=True)]
        self.items = tuple(Bound(*item) for item in zip(launches, made, sets, strict=True))

    def close(self) -> None:
        if self._pool is not None:
            lib.vkDestroyDescriptorPool(self._gpu.device, self._pool, ffi.NULL)
        for view in self._views:
            lib.vkDestroyBufferView(self._gpu.device, view, ffi.NULL)

    def _describe(self, launch: Launch, pipeline: Pipeline) -> Handle:
        layouts = ffi.new("VkDescriptorSetLayout[1]", [pipeline.set_layout])
        info = ffi.new("VkDescriptorSetAllocateInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO
        info.descriptorPool, info.descriptorSetCount, info.pSetLayouts = self._pool, 1, layouts
        descriptors = ffi.new("VkDescriptorSet[1]")
        check(lib.vkAllocateDescriptorSets(self._gpu.device, info, descriptors), "make a descriptor set")
        count = len(launch.bindings)
        regions = [binding.region for binding in launch.bindings]
        buffers = ffi.new("VkDescriptorBufferInfo[]", [(r.buffer.handle, r.offset, r.nbytes) for r in regions])
        views = ffi.new("VkBufferView[]", [self._view(binding) for binding in launch.bindings])
        writes = ffi.new("VkWriteDescriptorSet[]", count)
        for i, binding in enumerate(launch.bindings):
            write = writes[i]
            write.sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
            write.dstSet, write.dstBinding, write.descriptorCount = descriptors[0], i, 1
            write.descriptorType = STORAGE_BUFFER if binding.texels is None else TEXEL_BUFFER
            write.pBufferInfo, write.pTexelBufferView = buffers + i, views + i
        lib.vkUpdateDescriptorSets(self._gpu.device, count, writes, 0, ffi.NULL)
        return descriptors

    def _view(self, binding: Binding) -> Handle:
        """The texels of a region, or NULL where it is bound as it is."""
        if binding.texels is None:
            return ffi.NULL
        info = ffi.new("VkBufferViewCreateInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO
        info.buffer, info.format = binding.region.buffer.handle, binding.texels.value
        info.offset, info.range = binding.region.offset, binding.region.nbytes
        view = make("see a buffer as texels", lib.vkCreateBufferView, "VkBufferView", self._gpu.device, info, ffi.NULL)
        self._views.append(view)
        return view


def _check(gpu: Gpu, launch: Launch) -> None:
    facts, name = gpu.facts, launch.name or str(launch.kernel)
    for binding in launch.bindings:
        if binding.region.nbytes > facts.max_binding or binding.region.offset % facts.offset_alignment:
            raise BackendError(
                f"{name} would bind {binding.region.nbytes} bytes at {binding.region.offset}; {facts.name} takes "
                f"{facts.max_binding} at multiples of {facts.offset_alignment}. Lower `kv_memory`"
            )
    for extent, most in zip(launch.grid, facts.max_groups, strict=True):
        if isinstance(extent, int) and extent > most:
            raise BackendError(f"{name} would run {launch.grid} workgroups; {facts.name} takes {facts.max_groups}")


def _descriptor_pool(gpu: Gpu, launches: Sequence[Launch]) -> Handle:
    total = sum(len(launch.bindings) for launch in launches)
    texels = sum(binding.texels is not None for launch in launches for binding in launch.bindings)
    counts = {STORAGE_BUFFER: max(total - texels, 1)} | ({TEXEL_BUFFER: texels} if texels else {})
    sizes = [vk.VkDescriptorPoolSize(type=kind, descriptorCount=count) for kind, count in counts.items()]
    info = vk.VkDescriptorPoolCreateInfo(maxSets=len(launches), pPoolSizes=sizes)
    return make(
        "make a descriptor pool",
        lib.vkCreateDescriptorPool,
        "VkDescriptorPool",
        gpu.device,
        ffi.addressof(info),
        ffi.NULL,
    )


class CommandPool:
    """Where command buffers come from; ``close`` frees them all."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        info = vk.VkCommandPoolCreateInfo(
            flags=vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, queueFamilyIndex=gpu.family
        )
        self._handle = make(
            "make a command pool", lib.vkCreateCommandPool, "VkCommandPool", gpu.device, ffi.addressof(info), ffi.NULL
        )

    def begin(self) -> Commands:
        """A new command buffer; what it records comes after everything that was submitted before."""
        info = ffi.new("VkCommandBufferAllocateInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO
        info.commandPool, info.commandBufferCount = self._handle, 1
        handle = ffi.new("VkCommandBuffer*")
        check(lib.vkAllocateCommandBuffers(self._gpu.device, info, handle), "make a command buffer")
        return Commands(handle[0])

    def free(self, commands: Handle) -> None:
        lib.vkFreeCommandBuffers(self._gpu.device, self._handle, 1, ffi.new("VkCommandBuffer[1]", [commands]))

    def close(self) -> None:
        lib.vkDestroyCommandPool(self._gpu.device, self._handle, ffi.NULL)


@dataclass(slots=True)
class _Touched:
    """Regions read and written since the last barrier."""

    read: list[Region] = field(default_factory=list)
    written: list[Region] = field(default_factory=list)

    def conflicts(self, reads: Sequence[Region], writes: Sequence[Region]) -> bool:
        return (
            _any_overlap(self.written, reads) or _any_overlap(self.written, writes) or _any_overlap(self.read, writes)
        )


def _any_overlap(some: Sequence[Region], others: Sequence[Region]) -> bool:
    return any(one.overlaps(other) for one in some for other in others)


class Commands:
    """A command buffer while it is recorded. ``end`` gives what ``Timeline.submit`` takes, as often as one likes, but not
    again before it is done."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._touched = _Touched()
        self._pipeline: Pipeline | None = None
        self._barrier_info = ffi.new("VkMemoryBarrier*")
        self._barrier_info.sType = vk.VK_STRUCTURE_TYPE_MEMORY_BARRIER
        info = ffi.new("VkCommandBufferBeginInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO
        check(lib.vkBeginCommandBuffer(handle, info), "record")
        self.barrier()

    def dispatch(self, bound: Bound, indirect: Region | None = None) -> None:
        """Launch a kernel; ``indirect`` holds its grid, three words, if that has a Count."""
        launch = bound.launch
        reads = [binding.region for binding in launch.bindings if Access.READ in binding.access]
        writes = [binding.region for binding in launch.bindings if Access.WRITE in binding.access]
        self._order(reads if indirect is None else [*reads, indirect], writes)
        if bound.pipeline is not self._pipeline:
            lib.vkCmdBindPipeline(self._handle, _COMPUTE, bound.pipeline.handle)
            self._pipeline = bound.pipeline
        layout = bound.pipeline.layout
        lib.vkCmdBindDescriptorSets(self._handle, _COMPUTE, layout, 0, 1, bound.descriptors, 0, ffi.NULL)
        if launch.push:
            lib.vkCmdPushConstants(
                self._handle, layout, _COMPUTE_STAGE, 0, len(launch.push), ffi.from_buffer(launch.push)
            )
        if indirect is not None:
            lib.vkCmdDispatchIndirect(self._handle, indirect.buffer.handle, indirect.offset)
        else:
            x, y, z = launch.grid
            if not (isinstance(x, int) and isinstance(y, int) and isinstance(z, int)):
                raise BackendError(
                    f"{launch.name or launch.kernel} has a grid that depends on the step, and no place for it"
                )
            lib.vkCmdDispatch(self._handle, x, y, z)

    def copy(self, source: Region, target: Region) -> None:
        """Copy as much as the smaller of both holds."""
        self.copy_parts(source, target, [(0, 0, min(source.nbytes, target.nbytes))])

    def copy_parts(self, source: Region, target: Region, parts: Sequence[tuple[int, int, int]]) -> None:
        """Copy pieces, each (offset in ``source``, offset in ``target``, bytes)."""
        self._order([source], [target])
        pieces = [(source.offset + start, target.offset + place, nbytes) for start, place, nbytes in parts if nbytes]
        if pieces:
            given = ffi.new("VkBufferCopy[]", pieces)
            lib.vkCmdCopyBuffer(self._handle, source.buffer.handle, target.buffer.handle, len(pieces), given)

    def clear(self, target: Region) -> None:
        """Zeros in all of its whole words."""
        self._order([], [target])
        lib.vkCmdFillBuffer(self._handle, target.buffer.handle, target.offset, target.nbytes // 4 * 4, 0)

    def barrier(self) -> None:
        """Everything before it is done and visible to everything after it."""
        info = self._barrier_info
        info.srcAccessMask = _SHADER_WRITE | _TRANSFER_WRITE
        info.dstAccessMask = _INDIRECT_READ | _SHADER_READ | _SHADER_WRITE | _TRANSFER_READ | _TRANSFER_WRITE
        before, after = _COMPUTE_SHADER | _TRANSFER | _DRAW_INDIRECT, _DRAW_INDIRECT | _COMPUTE_SHADER | _TRANSFER
        lib.vkCmdPipelineBarrier(self._handle, before, after, 0, 1, info, 0, ffi.NULL, 0, ffi.NULL)
        self._touched = _Touched()

    def show_host(self) -> None:
        """Make what was copied so far visible to the host."""
        info = self._barrier_info
        info.srcAccessMask, info.dstAccessMask = _TRANSFER_WRITE, _HOST_READ
        lib.vkCmdPipelineBarrier(self._handle, _TRANSFER, _HOST, 0, 1, info, 0, ffi.NULL, 0, ffi.NULL)

    def end(self) -> Handle:
        check(lib.vkEndCommandBuffer(self._handle), "record")
        return self._handle

    def _order(self, reads: Sequence[Region], writes: Sequence[Region]) -> None:
        if self._touched.conflicts(reads, writes):
            self.barrier()
        self._touched.read += reads
        self._touched.written += writes
