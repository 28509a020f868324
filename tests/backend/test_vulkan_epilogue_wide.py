"""Epilogues over whole vocabularies on a Vulkan device: awkward rows, presets, many passes, little memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.program.node_reference import run_nodes
from pie_edge.sampling import parse
from tests.backend import openers
from tests.backend.whole_rows_on_device import *  # noqa: F403
from tests.backend.wide_epilogues_on_device import *  # noqa: F403
from tests.backend.wide_epilogues_on_device import agree
from tests.support.epilogue_device import Session
from tests.support.epilogues import Wire
from tests.support.wide_epilogues import arrays_of


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    opened = Session(openers.vulkan(memory=1 << 30))
    yield opened
    opened.close()


def test_rows_in_many_rounds_give_what_they_give_in_one(session: Session) -> None:
    wire = Wire()
    x = wire.add("softmax", wire.add("logits"))
    node = wire.add("sort", x, descending=True)
    text = wire.text([node, 1], wire.add("gt", x, wire.add("constant", value=0.001)))
    program, arrays = arrays_of(parse(text, vocabulary=2001, rows=2), "ties", 5)
    agree(session.run(program, arrays, round_bytes=1 << 16), run_nodes(program, arrays))


def test_more_rows_than_a_grid_has_workgroups(session: Session) -> None:
    wire = Wire()
    x = wire.parameter("i32", [4096, 3])
    text = wire.text(wire.add("reduce_sum", x), [wire.add("sort", x), 0], wire.add("add", x, x))
    epilogue = parse(text, vocabulary=8, rows=1)
    values = np.random.default_rng(0).integers(-9, 9, (17, 4096, 3)).astype(np.int32)
    program, arrays = arrays_of(epilogue, "noise", 17, {"param0": values})
    agree(session.run(program, arrays), run_nodes(program, arrays))
