"""The CUDA C++ that is written for epilogues, as text: placed in memory that there is only on paper."""

from __future__ import annotations

from collections.abc import Iterator

from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.cuda.epilogue import Epilogue
from pie_edge.backends.cuda.memory import Buffer, Region
from pie_edge.backends.shared.epilogue import Places
from pie_edge.backends.shared.placement import block, place_block
from pie_edge.program.ops import Program, Role

_CARD = Facts("paper", 0, 90, 132, 1 << 33, 13_000)


def texts(program: Program) -> Iterator[str]:
    """Of each fused kernel that the planner makes of it."""
    epilogue = Epilogue(program, _CARD, presets=False)
    for launch in epilogue.launches(_places(program, epilogue.arena_bytes)):
        if launch.kernel.text:
            yield launch.kernel.text


def together(kernels: dict[str, None]) -> str:
    """As one text: each kernel with a name of its own, and all else as it was."""
    return "".join(text.replace(" fused(Round", f" fused_{n}(Round") for n, text in enumerate(kernels))


def _places(program: Program, nbytes: int) -> Places[Buffer]:
    inputs, outputs = (block(program.by_role(role)) for role in (Role.INPUT, Role.OUTPUT))
    inbox, outbox, arena = (_room(number, size) for number, size in enumerate((inputs.nbytes, outputs.nbytes, nbytes)))
    regions = {value.name: _room(number, value.nbytes) for number, value in enumerate(program.by_role(Role.STATE), 3)}
    regions |= place_block(program, Role.INPUT, inputs, inbox) | place_block(program, Role.OUTPUT, outputs, outbox)
    return Places(regions, inbox, outbox, arena)


def _room(number: int, nbytes: int) -> Region:
    return Buffer((number + 1) << 33, max(nbytes, 16)).region()
