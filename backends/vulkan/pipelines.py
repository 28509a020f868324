"""Pipelines: made from SPIR-V and constants, several at once, kept while the device is open, cached on disk by driver."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pie_edge.backend import Stop
from pie_edge.backends.shared.whole_file import write_whole
from pie_edge.backends.vulkan.api import Handle, check, ffi, lib, make, vk
from pie_edge.backends.vulkan.device import Gpu
from pie_edge.backends.vulkan.launch import Kernel, Launch, Module

TEXEL_BUFFER, STORAGE_BUFFER = 4, 7
_COMPUTE_STAGE = 0x20


@dataclass(frozen=True, slots=True)
class Pipeline:
    handle: Handle
    layout: Handle
    set_layout: Handle


Layout = tuple[tuple[bool, ...], int]
"""Of each binding whether it is a buffer of texels, and bytes of push constants."""


class Pipelines:
    """Thread-safe as long as no two threads ask for the same kernels: ``compile`` runs in one worker at a time."""

    def __init__(self, gpu: Gpu, cache_dir: Path | None, stop: Stop | None = None) -> None:
        self._stop = stop or Stop()
        self._gpu = gpu
        self._file = None if cache_dir is None else cache_dir / _file_name(gpu)
        self._cache = self._open_cache()
        self._modules: dict[str, Handle] = {}
        self._layouts: dict[Layout, tuple[Handle, Handle]] = {}
        self._made: dict[tuple[tuple[str, bytes], Layout], Pipeline] = {}

    def prepare(self, launches: Iterable[Launch]) -> None:
        """Make all pipelines that these need: drivers compile, so one thread per core makes them."""
        wanted = {}
        for launch in launches:
            key = launch.kernel.key, _layout(launch)
            if key not in self._made:
                wanted[key] = launch.kernel
        if not wanted:
            return
        for (_, layout), kernel in wanted.items():
            self._layout(layout)
            self._module(kernel.module)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            made = pool.map(lambda item: self._make(item[1], item[0][1]), wanted.items())
            self._made |= dict(zip(wanted, made, strict=True))

    def of(self, launch: Launch) -> Pipeline:
        """The pipeline of a launch; made now if ``prepare`` wasn't called for it."""
        key = launch.kernel.key, _layout(launch)
        if key not in self._made:
            self.prepare((launch,))
        return self._made[key]

    def __len__(self) -> int:
        return len(self._made)

    def save(self) -> None:
        """Write the driver's cache to disk, for the next start. A disk that can't be written is no reason to fail."""
        if self._file is None:
            return
        size = ffi.new("size_t*")
        check(lib.vkGetPipelineCacheData(self._gpu.device, self._cache, size, ffi.NULL), "give its pipeline cache")
        data = ffi.new("char[]", size[0])
        check(lib.vkGetPipelineCacheData(self._gpu.device, self._cache, size, data), "give its pipeline cache")
        with suppress(OSError):
            write_whole(self._file, bytes(ffi.buffer(data, size[0])))

    def close(self) -> None:
        device = self._gpu.device
        for pipeline in self._made.values():
            lib.vkDestroyPipeline(device, pipeline.handle, ffi.NULL)
        for layout, set_layout in self._layouts.values():
            lib.vkDestroyPipelineLayout(device, layout, ffi.NULL)
            lib.vkDestroyDescriptorSetLayout(device, set_layout, ffi.NULL)
        for module in self._modules.values():
            lib.vkDestroyShaderModule(device, module, ffi.NULL)
        lib.vkDestroyPipelineCache(device, self._cache, ffi.NULL)

    def _open_cache(self) -> Handle:
        data = b""
        if self._file is not None:
            # The driver checks the header itself and ignores what another one wrote.
            with suppress(OSError):
                data = self._file.read_bytes()
        kept = ffi.from_buffer(data)
        info = ffi.new("VkPipelineCacheCreateInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO
        info.initialDataSize, info.pInitialData = len(data), kept if data else ffi.NULL
        return make(
            "make a pipeline cache", lib.vkCreatePipelineCache, "VkPipelineCache", self._gpu.device, info, ffi.NULL
        )

    def _module(self, module: Module) -> Handle:
        if module.digest not in self._modules:
            code = ffi.from_buffer("uint32_t[]", module.code)
            info = ffi.new("VkShaderModuleCreateInfo*")
            info.sType = vk.VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO
            info.codeSize, info.pCode = len(module.code), code
            self._modules[module.digest] = make(
                f"read shader {module.name}",
                lib.vkCreateShaderModule,
                "VkShaderModule",
                self._gpu.device,
                info,
                ffi.NULL,
            )
        return self._modules[module.digest]

    def _layout(self, layout: Layout) -> tuple[Handle, Handle]:
        if layout not in self._layouts:
            kinds, push = layout
            bindings = [
                vk.VkDescriptorSetLayoutBinding(
                    binding=i,
                    descriptorType=TEXEL_BUFFER if texels else STORAGE_BUFFER,
                    descriptorCount=1,
                    stageFlags=_COMPUTE_STAGE,
                )
                for i, texels in enumerate(kinds)
            ]
            info = vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings)
            made = make(
                "make a set layout",
                lib.vkCreateDescriptorSetLayout,
                "VkDescriptorSetLayout",
                self._gpu.device,
                ffi.addressof(info),
                ffi.NULL,
            )
            ranges = [vk.VkPushConstantRange(stageFlags=_COMPUTE_STAGE, offset=0, size=push)] if push else []
            info = vk.VkPipelineLayoutCreateInfo(pSetLayouts=[made], pPushConstantRanges=ranges)
            pipeline_layout = make(
                "make a pipeline layout",
                lib.vkCreatePipelineLayout,
                "VkPipelineLayout",
                self._gpu.device,
                ffi.addressof(info),
                ffi.NULL,
            )
            self._layouts[layout] = pipeline_layout, made
        return self._layouts[layout]

    def _make(self, kernel: Kernel, layout: Layout) -> Pipeline:
        self._stop.look()
        pipeline_layout, set_layout = self._layouts[layout]
        count = len(kernel.constants)
        entries = ffi.new("VkSpecializationMapEntry[]", [(i, 4 * i, 4) for i in range(count)])
        data = ffi.from_buffer(kernel.data)
        special = ffi.new("VkSpecializationInfo*", (count, entries, len(kernel.data), data))
        entry = ffi.new("char[]", b"main")
        info = ffi.new("VkComputePipelineCreateInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO
        info.stage.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
        info.stage.stage, info.stage.module, info.stage.pName = (
            _COMPUTE_STAGE,
            self._modules[kernel.module.digest],
            entry,
        )
        info.stage.pSpecializationInfo = special
        info.layout = pipeline_layout
        handle = make(
            f"compile {kernel}",
            lib.vkCreateComputePipelines,
            "VkPipeline",
            self._gpu.device,
            self._cache,
            1,
            info,
            ffi.NULL,
        )
        return Pipeline(handle, pipeline_layout, set_layout)


def _layout(launch: Launch) -> Layout:
    return tuple(binding.texels is not None for binding in launch.bindings), len(launch.push)


def _file_name(gpu: Gpu) -> str:
    return f"vulkan-{hashlib.sha256(gpu.facts.cache_key.encode()).hexdigest()[:16]}.pipelines"
