"""The CUDA C++ that is written at run time, for epilogues, as NVRTC compiles it for every architecture that is served."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from hypothesis import HealthCheck, given, settings

from pie_edge.backends.cuda import nvrtc
from pie_edge.program.ops import Program
from pie_edge.sampling import parse
from tests.backend.cuda_registers import ARCHITECTURES
from tests.backend.test_epilogues_on_devices import ODD, odd_epilogue
from tests.support.cuda_epilogues import texts, together
from tests.support.epilogue_graphs import Case, cases
from tests.support.wgsl_programs import drawing, epilogues

_GRAPHS = 12
_WARNING, _UNUSED = re.compile(r"warning #(\d+)"), {"177", "550"}
"""The numbers of those that say that something was declared and not used: not every kernel wants its row."""


def random_graphs() -> list[Program]:
    """The same ones each time."""
    found: list[Program] = []

    @settings(
        max_examples=_GRAPHS, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=cases())
    def keep(case: Case) -> None:
        found.append(parse(case.text, vocabulary=case.vocabulary, rows=case.rows).program(3 * case.rows, 3 * case.rows))

    keep()
    return found


def kernels(programs: Iterable[Program]) -> dict[str, None]:
    return {text: None for program in programs for text in texts(program)}


def whole() -> Iterator[Program]:
    """Presets as the planner makes them, arithmetic of all that is odd, and graphs at random."""
    yield from (parse(text, vocabulary=49152, rows=1).program(7, 7) for text in drawing())
    yield parse(odd_epilogue(), vocabulary=len(ODD), rows=1).program(3, 3)
    yield from random_graphs()


def test_what_is_written_for_epilogues_compiles_for_every_architecture() -> None:
    """Whole ones for each, and those of single nodes for one or another in turn: all would take a minute."""
    always, single = kernels(whole()), kernels(epilogues())
    turns = [text for text in single if text not in always]
    assert len(always) > 20 and len(turns) > 200

    def compiled(number: int) -> tuple[bytes, str]:
        chosen = always | dict.fromkeys(turns[number :: len(ARCHITECTURES)])
        return nvrtc.compiled("epilogues.cu", together(chosen), nvrtc.options_for(ARCHITECTURES[number]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for cubin, log in pool.map(compiled, range(len(ARCHITECTURES))):
            assert cubin.startswith(b"\x7fELF")
            assert set(_WARNING.findall(log)) <= _UNUSED
