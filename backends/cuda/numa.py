"""Host memory near a card: pages that a thread touches first lie on the NUMA node that its policy prefers. Linux has this."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEVICES = Path("/sys/bus/pci/devices")
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}
"""Numbers of set_mempolicy and get_mempolicy."""
_PREFERRED = 1
_MOST_NODES = 1024
_Nodes = ctypes.c_ulong * (_MOST_NODES // (8 * ctypes.sizeof(ctypes.c_ulong)))


@dataclass(frozen=True, slots=True)
class Near:
    """Memory is taken on ``node``; where that is None it is taken anywhere, for the ``reason``. Printed, it says so."""

    node: int | None
    reason: str = ""

    def __str__(self) -> str:
        return f"pinned memory anywhere: {self.reason}" if self.node is None else f"pinned memory on node {self.node}"

    @contextmanager
    def preferred(self) -> Iterator[None]:
        """This thread's new memory lies there. A container may forbid it: then it is as far as it would have been."""
        before = None if self.node is None else policy()
        changed = self.node is not None and before is not None and _set(_PREFERRED, _only(self.node))
        try:
            yield
        finally:
            if changed and before is not None:
                _set(*before)


def near(bus: str) -> Near:
    """For a card at this place of the PCI bus."""
    if sys.platform != "linux":
        return Near(None, "only Linux is asked for the card's node")
    if platform.machine() not in _CALLS:
        return Near(None, f"set_mempolicy isn't known on {platform.machine()}")
    try:
        node = int((DEVICES / bus / "numa_node").read_text())
    except (OSError, ValueError):
        return Near(None, f"the system doesn't tell the node of {bus}")
    if not 0 <= node < _MOST_NODES:
        return Near(None, "the machine has one node")
    if policy() is None:
        return Near(None, "the system doesn't let this process choose")
    return Near(node)


def policy() -> tuple[int, Any] | None:
    """This thread's, as it is now; None where it can't be asked."""
    mode, nodes = ctypes.c_int(), _Nodes()
    _, get = _CALLS[platform.machine()]
    failed = _system_call()(get, ctypes.byref(mode), nodes, ctypes.c_ulong(_MOST_NODES), None, ctypes.c_ulong(0))
    return None if failed else (mode.value, nodes)


def _only(node: int) -> Any:
    nodes, word = _Nodes(), 8 * ctypes.sizeof(ctypes.c_ulong)
    nodes[node // word] = 1 << node % word
    return nodes


def _set(mode: int, nodes: Any) -> bool:
    call, _ = _CALLS[platform.machine()]
    return bool(_system_call()(call, ctypes.c_int(mode), nodes, ctypes.c_ulong(_MOST_NODES)) == 0)


def _system_call() -> Any:
    found = ctypes.CDLL(None, use_errno=True).syscall
    found.restype = ctypes.c_long
    return found
