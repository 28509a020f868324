"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.backends.shared.grid import Extent, Grid
from pie_edge.backends.shared.lowering import BaseLowering
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.plan import MOST_GROUPS


@dataclass(frozen=True)
class Lowering(BaseLowering[Buffer, Tuning]):
    """Inputs are not in ``place``: they lie in ``step``."""

    step: Region
    words: Mapping[str, int]
    """The word of ``step`` that each input begins with."""
    max_binding: int

    @property
    def header(self) -> Region:
        return self.step.part(0, 16)

    def over(self, items: int, rows: Extent) -> Grid:
        """An invocation for each of ``items`` in every row; what exceeds a dimension goes along z."""
        groups = -(-items // self.tuning.elementwise)
        return min(groups, MOST_GROUPS), rows, -(-groups // MOST_GROUPS)
