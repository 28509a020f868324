"""Epilogues on a Vulkan device in tests: a Program and its arrays, to its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pie_edge.backends.vulkan.epilogue import Epilogue
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.session import Session
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Program, Role

NUMPY = {DType.F32: np.float32, DType.I32: np.int32, DType.U32: np.uint32, DType.U8: np.bool_}


def _blocks(session: Session, program: Program, role: Role) -> tuple[Any, dict[str, Region]]:
    offsets, total = {}, 0
    for value in program.by_role(role):
        offsets[value.name] = total
        total += -(-value.nbytes // 256) * 256
    buffer = session.device_buffer(total, f"{role} values")
    sizes = {value.name: -(-value.nbytes // 4) * 4 for value in program.by_role(role)}
    return buffer, {name: buffer.region(offset, sizes[name]) for name, offset in offsets.items()}


def run(session: Session, program: Program, arrays: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The outputs of the true passes, as ``run_nodes`` gives them; ``options`` are the Epilogue's."""
    epilogue = Epilogue(program, session.gpu.facts, **options)
    buffers, places = [], {}
    for role in (Role.STATE, Role.INPUT, Role.OUTPUT):
        buffer, regions = _blocks(session, program, role)
        buffers.append(buffer)
        places |= regions
    arena = session.device_buffer(epilogue.arena_bytes, "an epilogue")
    try:
        for value in (*program.by_role(Role.STATE), *program.by_role(Role.INPUT)):
            octets = np.ascontiguousarray(arrays[value.name]).view(np.uint8).tobytes()
            session.upload(places[value.name], memoryview(octets.ljust(places[value.name].nbytes, b"\xfe")))
        # What nothing has written must never be read: a pattern that no answer holds.
        session.upload(arena.region(), memoryview(b"\xee\xff\xc0\xff" * (arena.nbytes // 4)))
        session.run(epilogue.launches(places.__getitem__, arena.region(0, epilogue.arena_bytes)))
        passes = int(arrays["counts"][0])
        found = {}
        for value in program.by_role(Role.OUTPUT):
            raw = np.frombuffer(session.read(places[value.name]), np.uint8)[: value.nbytes]
            found[value.name] = raw.view(NUMPY[value.dtype]).reshape(value.shape)[:passes]
        return found
    finally:
        for buffer in (*buffers, arena):
            session.free(buffer)
