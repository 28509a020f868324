"""The native replayer of plans: bind groups are made once, and a step is encoded anew through wgpu's raw entry points.

WebGPU has nothing to record a compute pass once and run it again (submitting a command buffer twice ends the process), so
this is what a step costs Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pie_edge.backends.shared.grid import Count
from pie_edge.backends.wgpu.api import Handle, ffi, lib, libf, translated
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import ALIGNMENT, Group, Plan
from pie_edge.backends.wgpu.session import Session


class Encoder:
    """A plan with its pipelines and bind groups on a session. ``encode`` gives the commands of one step."""

    def __init__(self, session: Session, plan: Plan) -> None:
        self.plan = plan
        self._session = session
        self._device = session.device._internal
        pipelines = [session.pipelines.pipeline(plan.shaders[s], plan.layouts[at]) for s, at in plan.pipelines]
        self._uniforms = session.buffer(len(plan.uniforms), "parameters")
        session.upload(self._uniforms.region(), plan.uniforms)
        params = self._params_group()
        groups = [self._group(group) for group in plan.groups]
        # Python objects of the API are kept: their ends would free what is encoded.
        self._kept = (pipelines, groups, params)
        self._params = params._internal
        self._steps = [
            (
                pipelines[dispatch.pipeline]._internal,
                groups[dispatch.group]._internal,
                ffi.new("uint32_t[1]", [dispatch.uniform]),
                dispatch.grid,
                all(isinstance(extent, int) for extent in dispatch.grid),
            )
            for dispatch in plan.dispatches
        ]
        self._outbox = None
        if plan.outbox is not None:
            number, offset, nbytes = plan.outbox
            self._outbox = plan.buffers[number].handle._internal, offset, nbytes

    def __len__(self) -> int:
        """Launches."""
        return len(self._steps)

    def encode(self, counts: Mapping[str, int], readback: Region | None, part: slice | None = None) -> Any:
        """A command buffer, to be submitted once; the outputs are copied to ``readback``. With ``part``, of some launches."""
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, ffi.NULL)
        run = lib.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL)
        set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
        dispatch, nothing, params = lib.wgpuComputePassEncoderDispatchWorkgroups, ffi.NULL, self._params
        before = None
        for pipeline, group, offset, grid, fixed in self._steps if part is None else self._steps[part]:
            if fixed:
                x, y, z = grid
            else:
                x, y, z = (e.value(counts) if isinstance(e, Count) else e for e in grid)
                if not (x and y and z):
                    continue
            if pipeline is not before:
                set_pipeline(run, pipeline)
                before = pipeline
            set_group(run, 0, group, 0, nothing)
            set_group(run, 1, params, 1, offset)
            dispatch(run, x, y, z)
        lib.wgpuComputePassEncoderEnd(run)
        lib.wgpuComputePassEncoderRelease(run)
        if self._outbox is not None and readback is not None:
            source, offset, nbytes = self._outbox
            target = readback.buffer.handle._internal
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, source, offset, target, readback.offset, nbytes)
        with translated("record a step"):
            commands = libf.wgpuCommandEncoderFinish(encoder, ffi.NULL)
        lib.wgpuCommandEncoderRelease(encoder)
        return commands

    def release(self) -> None:
        self._session.free(self._uniforms)

    def _params_group(self) -> Handle:
        resource = {"buffer": self._uniforms.handle, "offset": 0, "size": ALIGNMENT}
        with translated("bind parameters"):
            return self._session.device.create_bind_group(
                layout=self._session.pipelines.params, entries=[{"binding": 0, "resource": resource}]
            )

    def _group(self, group: Group) -> Handle:
        buffers = self.plan.buffers
        entries = [
            {
                "binding": entry.slot,
                "resource": {"buffer": buffers[entry.buffer].handle, "offset": entry.offset, "size": entry.nbytes},
            }
            for entry in group.entries
        ]
        with translated("bind buffers"):
            layout = self._session.pipelines.layout(self.plan.layouts[group.layout])
            return self._session.device.create_bind_group(layout=layout, entries=entries)
