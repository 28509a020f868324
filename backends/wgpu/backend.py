"""The Backend protocol on wgpu: weights and states on the device, Programs planned once, a step one submit."""

from __future__ import annotations

from pie_edge.backend import Stop
from pie_edge.backends.shared.open_device import OpenDevice, OpenedBackend, Options
from pie_edge.backends.wgpu import tune
from pie_edge.backends.wgpu.device import Facts, open_device
from pie_edge.backends.wgpu.lower import KINDS
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.session import Session
from pie_edge.program.ops import Role

__all__ = ["Options", "WgpuBackend", "open_wgpu"]


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    title = "wgpu"
    facts: Facts
    session: Session

    def __init__(self, options: Options, stop: Stop | None = None) -> None:
        device, facts = open_device(options.device)
        self.facts = facts
        session = Session(device, facts, min(options.memory or facts.memory, facts.memory), stop)
        bench = tune.bench(session, min(options.max_binding or facts.max_binding, facts.max_binding))
        super().__init__(bench, options)
        self.prove(bench, options)

    def zeroed(self, nbytes: int, role: Role) -> Region:
        """Buffers are zeroed when they are made."""
        return self.session.device_buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)


class WgpuBackend(OpenedBackend[Live]):
    id, title, kinds = "wgpu", "wgpu", KINDS
    opens = Live


open_wgpu = WgpuBackend.opened
