"""Graphs: what is enqueued on a stream is captured, and launched as one from then on."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_void_p

from pie_edge.backends.cuda.device import Gpu

_NON_BLOCKING = 1
_THREAD_LOCAL = 1
"""Capturing concerns the capturing thread alone."""


def captured(gpu: Gpu, enqueue: Callable[[c_void_p], None]) -> c_void_p:
    """What ``enqueue`` puts on the stream it is given, ready to be launched. Raises what that raises, DeviceLost, OutOfMemory or
    BackendError."""
    stream = gpu.made("make a stream", "cuStreamCreate", _NON_BLOCKING)
    try:
        graph = _capture(gpu, enqueue, stream)
        try:
            return gpu.made("make a graph", "cuGraphInstantiateWithFlags", graph, 0)
        finally:
            gpu.raw("cuGraphDestroy")(graph)
    finally:
        gpu.raw("cuStreamDestroy_v2")(stream)


def _capture(gpu: Gpu, enqueue: Callable[[c_void_p], None], stream: c_void_p) -> c_void_p:
    """All memory and functions are there already: capturing allocates and loads nothing, which a driver would refuse. It ends
    whatever happens, since what is refused is refused to the whole thread."""
    graph = c_void_p()
    gpu.call("capture a step", "cuStreamBeginCapture_v2", stream, _THREAD_LOCAL)
    try:
        enqueue(stream)
    except BaseException:
        gpu.raw("cuStreamEndCapture")(stream, byref(graph))
        if graph:
            gpu.raw("cuGraphDestroy")(graph)
        raise
    gpu.call("capture a step", "cuStreamEndCapture", stream, byref(graph))
    return graph
