"""What is gone when a device was lost and opened again: all that inferlets had there."""

from __future__ import annotations

from collections.abc import Callable

from pie_edge.control.device import Device
from pie_edge.control.prefix import PrefixIndex
from pie_edge.control.space import Space
from pie_edge.errors import DeviceLost


class Reopened:
    """Notices it before the next step is formed: pages that are zeros must not be read as what was written there."""

    def __init__(self, device: Device, spaces: set[Space], prefixes: PrefixIndex, unshare: Callable[[], None]) -> None:
        """``unshare`` lets go of what spaces have left for others."""
        self._device = device
        self._spaces = spaces
        self._prefixes = prefixes
        self._unshare = unshare
        self._known = device.opened

    def notice(self) -> int:
        """How often the device was opened. Where that was again, every space that has written anything ends with DeviceLost."""
        if self._device.opened != self._known:
            self._known = self._device.opened
            self._unshare()
            for space in [space for space in self._spaces if any(entry.written for entry in space.entries())]:
                space.end(
                    DeviceLost(
                        f"{space.name} had pages on {self._device.name}, which was lost and is opened again without them; run "
                        "the request again"
                    )
                )
            self._prefixes.clear()
        return self._known
