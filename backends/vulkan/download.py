"""Pieces of states on their way to the host."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.session import Session


class Download:
    """Enqueued when it is made, done when the timeline reaches ``value``. Its buffer is given back with it."""

    def __init__(self, session: Session, regions: Sequence[Region]) -> None:
        self._sizes = [region.nbytes for region in regions]
        self.value, self._buffer = session.download(regions)
        weakref.finalize(self, session.free, self._buffer).atexit = False

    def outputs(self) -> dict[str, memoryview]:
        """The pieces in order, copied, once it is done."""
        mapped = self._buffer.mapped
        assert mapped is not None
        found, end = {}, 0
        for index, nbytes in enumerate(self._sizes):
            found[str(index)] = memoryview(bytes(mapped[end : end + nbytes]))
            end += nbytes
        return found
