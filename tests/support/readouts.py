"""What a pass gives of its rows, without an inferlet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pie_edge.control.engine import Engine
from pie_edge.control.queue import ForwardCall
from tests.support.epilogues import Wire


async def read_out(engine: Engine, tokens: list[int], nodes: list[Any], rows: Iterable[int]) -> list[Any]:
    """What a pass's epilogue gives of these sources, each with its rows; ``reduce_mean`` is over the rows of the one before."""
    wire, outputs = Wire(), list[int]()
    for node, count in zip(nodes, [*nodes[1:], None], strict=True):
        if node == "reduce_mean":
            outputs = [wire.add(node, outputs[-1], axis=0)]
        elif isinstance(node, str):
            outputs.append(wire.add(node, rows=count))
    space = engine.open_space("read", 0)
    call = ForwardCall(space.create_working_set(64), tuple(tokens), 0, len(tokens), tuple(rows), wire.text(*outputs))
    found = await space.submit(call)
    space.close()
    return [np.frombuffer(one.data, np.float32).reshape(one.shape) for one in found]
