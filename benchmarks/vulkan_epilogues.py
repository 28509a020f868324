"""What epilogues cost on a Vulkan device: made ready once, and run for a token.

    python -m benchmarks.vulkan_epilogues [--vocabulary 49152] [--passes 1]

Columns: launches; milliseconds to plan and assemble, to create pipelines, of the first run (some drivers compile then) and
of the best of many runs; the NumPy reference in the same process. Set MESA_SHADER_CACHE_DISABLE=true to see a first start.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pie_edge.backends.shared.epilogue import Places
from pie_edge.backends.shared.placement import block, place_block
from pie_edge.backends.vulkan.device import open_gpu
from pie_edge.backends.vulkan.epilogue import Epilogue
from pie_edge.backends.vulkan.memory import Buffer, Region
from pie_edge.backends.vulkan.record import BoundLaunches
from pie_edge.backends.vulkan.session import Session
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.ops import Program, Role
from pie_edge.sampling import parse, presets
from tests.support.epilogues import NUMPY, Wire
from tests.support.wide_epilogues import TEXTS, arrays_of

RUNS = 15


@dataclass(frozen=True)
class Subject:
    name: str
    text: str
    parameters: tuple[bytes, ...] = ()
    presets: bool = True


def subjects() -> list[Subject]:
    narrowed, plain, greedy = presets.sample(0.7, top_k=40, top_p=0.9), presets.sample(0.7), presets.argmax()
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.add("constant", value=0.7))
    measured = wire.text(wire.add("gumbel_max", x), wire.add("entropy", x), wire.add("logsumexp", x))
    return [
        Subject("argmax", greedy.wire),
        Subject("temperature", plain.wire, plain.parameters),
        Subject("top-k, top-p", narrowed.wire, narrowed.parameters),
        Subject("top-k, top-p (as any other)", narrowed.wire, narrowed.parameters, presets=False),
        Subject("temperature, entropy, likelihood", measured),
        *(Subject(name, TEXTS[name]) for name in ("softmax", "top-256", "sort", "cumsum")),
    ]


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return 1e3 * (time.perf_counter() - start), result


def measure(session: Session, subject: Subject, vocabulary: int, passes: int) -> list[str]:
    epilogue = parse(subject.text, vocabulary=vocabulary, rows=1)
    given = {
        f"param{number}": np.frombuffer(data * passes, NUMPY[epilogue.parameters[number].dtype])
        for number, data in enumerate(subject.parameters)
    }
    program, arrays = arrays_of(epilogue, "noise", passes, given)
    planning, made = milliseconds(lambda: Epilogue(program, session.gpu.facts, presets=subject.presets))
    places = placed(session, program, arrays, made.arena_bytes)
    assembling, launches = milliseconds(lambda: made.launches(places))
    creating, bound = milliseconds(lambda: BoundLaunches(session.gpu, session.pipelines, launches))
    first, *others = (run(session, bound) for _ in range(RUNS))
    bound.close()
    session.free(places.arena.buffer)
    reference, _ = milliseconds(lambda: run_nodes(program, arrays))
    figures = (planning + assembling, creating, first, min(others), reference)
    return [subject.name, str(len(launches)), *(f"{figure:.2f}" for figure in figures)]


def placed(session: Session, program: Program, arrays: dict[str, Any], arena_bytes: int) -> Places[Buffer]:
    boxes: dict[Role, Region] = {}
    regions: dict[str, Region] = {}
    for role in (Role.STATE, Role.INPUT, Role.OUTPUT):
        where = block(program.by_role(role))
        boxes[role] = session.device_buffer(where.nbytes, f"{role} values").region()
        regions |= place_block(program, role, where, boxes[role])
    for value in (*program.by_role(Role.STATE), *program.by_role(Role.INPUT)):
        session.upload(regions[value.name], memoryview(np.ascontiguousarray(arrays[value.name]).tobytes()))
    arena = session.device_buffer(arena_bytes, "temporaries").region()
    return Places(regions, boxes[Role.INPUT], boxes[Role.OUTPUT], arena)


def run(session: Session, bound: BoundLaunches) -> float:
    commands = session.commands.begin()
    for item in bound.items:
        commands.dispatch(item)
    handle = commands.end()
    session.timeline.drain()
    return milliseconds(lambda: session.timeline.wait(session.timeline.submit(handle)))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--passes", type=int, default=1)
    given = parser.parse_args()
    session = Session(open_gpu(), 4 << 30, None)
    print(f"{session.gpu.facts.name}, {given.passes} x {given.vocabulary} logits")
    header = ("epilogue", "launches", "plan", "pipelines", "first", "run", "numpy")
    for row in (list(header), *(measure(session, subject, given.vocabulary, given.passes) for subject in subjects())):
        print(f"{row[0]:34}" + "".join(f"{cell:>11}" for cell in row[1:]), flush=True)
    session.close()


if __name__ == "__main__":
    main()
