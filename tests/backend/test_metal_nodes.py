"""The Metal backend's kernels for epilogues' order and draws, on the emulator, as MLX would give them to Metal: over whole
vocabularies against the node reference, in any order of threads, with no race and no pointer into another memory; mutants are
caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_mlx")
pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.metal.epilogues import nodes
from pie_edge.backends.metal.tuning import EXTENTS, Tuning
from pie_edge.errors import DeviceLost
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.ops import Program
from pie_edge.sampling import parse, presets
from tests.backend.metal_emulated import BACKWARD, SHUFFLED, Emulator, changed, opened, without_barrier
from tests.backend.wide_epilogues_on_device import *  # noqa: F403
from tests.backend.wide_epilogues_on_device import check_rows, parameters
from tests.simt import build, msl
from tests.support.epilogue_device import Session
from tests.support.epilogues import Wire
from tests.support.wide_epilogues import ROWS, arrays_of

ORDERS = ("top-1", "top-256", "top-1024", "top-5000", "sort", "sort-integers", "kth-largest")
BY_MLX = Tuning(**{f"{node}_by_mlx": (True,) * len(EXTENTS) for node in nodes.KINDS})
SMALL = 301
Array = Any


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    found = Session(opened(launcher=Emulator()))
    yield found
    found.close()


@pytest.fixture(scope="module")
def by_mlx() -> Iterator[Session]:
    """Where MLX's ops find the order."""
    found = Session(opened(launcher=Emulator(), tuning=BY_MLX))
    yield found
    found.close()


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_a_row_of_49152_logits_is_the_references(session: Session, name: str, kind: str) -> None:
    check_rows(session, name, kind, 49152, passes=2)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", ORDERS)
def test_mlxs_ops_find_the_same_order(by_mlx: Session, name: str, kind: str) -> None:
    check_rows(by_mlx, name, kind, 5000, passes=2)


def ordered(name: str, kind: str) -> Callable[[Emulator], None]:
    def check(launcher: Emulator) -> None:
        found = Session(opened(launcher=launcher))
        try:
            check_rows(found, name, kind, 6001 if name == "top-5000" else SMALL, passes=2)
        finally:
            found.close()

    return check


def of_logits(op: str, dtype: str, arguments: Array) -> Callable[[Emulator], None]:
    """A threshold of rows, an argument each."""

    def check(launcher: Emulator) -> None:
        wire = Wire()
        text = wire.text(wire.add(op, wire.add("logits"), wire.parameter(dtype, [])))
        program, arrays = arrays_of(parse(text, vocabulary=SMALL, rows=1), "noise", len(arguments))
        same(launcher, program, arrays | {"param0": arguments})

    return check


def drawn(launcher: Emulator) -> None:
    """Of what a mask leaves, by all three stages: as the reference draws it."""
    wire = Wire()
    x = wire.add("mask_logits", wire.add("logits"), wire.parameter("u32", [(SMALL + 31) // 32]))
    x = wire.add("div", x, wire.parameter("f32", []))
    for op, argument in (("kth_largest", "u32"), ("nucleus", "f32"), ("min_p", "f32")):
        edge = wire.add(op, x, wire.parameter(argument, []), keepdims=True)
        x = wire.add("select", wire.add("ge", x, edge), x, wire.add("constant", value="-inf"))
    epilogue = parse(wire.text(wire.add("gumbel_max", x)), vocabulary=SMALL, rows=1)
    assert epilogue.preset == "sample(mask, temperature, top_k, top_p, min_p)"
    passes, random = 40, np.random.default_rng(2)
    given = {
        "param0": random.integers(0, 2**32, (passes, 10), dtype=np.uint32),
        "param1": np.full(passes, 2, np.float32),
        "param2": random.integers(3, 40, passes).astype(np.uint32),
        "param3": random.uniform(0.2, 0.99, passes).astype(np.float32),
        "param4": np.full(passes, 0.01, np.float32),
    }
    same(launcher, *arrays_of(epilogue, "noise", passes, given))


def same(launcher: Emulator, program: Program, arrays: Mapping[str, Array]) -> None:
    """Every output is the reference's, to the last bit."""
    found = Session(opened(launcher=launcher))
    try:
        np.testing.assert_array_equal(found.run(program, arrays)["out0"], run_nodes(program, arrays)["out0"])
    finally:
        found.close()


KTH = of_logits("kth_largest", "i32", np.int32([-1, 0, 1, 2, 9, 40, 77, 150, 299, SMALL, 999]))
NUCLEUS = of_logits("nucleus", "f32", np.float32([-1, 0, *np.linspace(0.03, 0.999, 30), 1, np.nan]))
TOP, SORT = ordered("top-256", "ties"), ordered("sort", "ties")
ALL = {"kth_largest": KTH, "top_k": TOP, "sort": SORT, "nucleus": NUCLEUS, "sample": drawn}


def test_all_kernels_are_among_them() -> None:
    assert ALL.keys() == nodes.NODES.keys()
    for name, check in ALL.items():
        launcher = Emulator()
        check(launcher)
        assert nodes.NODES[name].kernel in {launched for launched, *_ in launcher.texts}


@pytest.mark.parametrize("order", [BACKWARD, SHUFFLED])
@pytest.mark.parametrize("name", ALL)
def test_the_order_of_threads_changes_nothing_and_nothing_races(name: str, order: int) -> None:
    ALL[name](Emulator(flags=build.TRACED, order=order))


@pytest.mark.skipif(not msl.can_check(), reason=f"address spaces are checked by {msl.CHECKER}, which isn't here")
@pytest.mark.parametrize("name", ALL)
def test_no_kernel_mixes_address_spaces(name: str) -> None:
    launcher = Emulator()
    ALL[name](launcher)
    assert not [said for text in launcher.texts.values() if (said := msl.checked(text))]


@pytest.mark.parametrize("preset", [True, False])
def test_a_preset_is_one_kernel_unless_it_is_not_looked_for(preset: bool) -> None:
    call = presets.sample(0.8, top_k=20, top_p=0.9)
    epilogue = parse(call.wire, vocabulary=SMALL, rows=1)
    launcher = Emulator()
    found = Session(opened(launcher=launcher))
    program, arrays = arrays_of(epilogue, "noise", 3, parameters(epilogue, call, 3))
    tokens = found.run(program, arrays, presets=preset)["out0"]
    found.close()
    np.testing.assert_array_equal(tokens, run_nodes(program, arrays)["out0"])
    kernels = {launched.name for launched, *_ in launcher.texts}
    assert (kernels == {"nodes_sample"}) == preset


_BARRIERS = {"kth_largest": (0, 4), "sort": (0, 3), "top_k": (4, 6), "nucleus": (4, 8), "sample": (6, 10)}
BARRIERS = [(name, number) for name, numbers in _BARRIERS.items() for number in range(*numbers)]
"""Of each kernel's text, whose first ones are of bins: the same for all."""
MUTANTS: tuple[tuple[Callable[[Emulator], None], str, str], ...] = (
    (KTH, "(key & known_bits(shift)) == prefix", "(key & known_bits(shift)) >= prefix"),
    (KTH, "if (here >= wanted) break;", "if (here > wanted) break;"),
    (KTH, "wanted -= stretches[stretch--]", "stretch--"),
    (KTH, "told[2] != 0 && int(k) < 1", "false"),
    (KTH, "word >> 31 != 0 ? ~word", "word >> 31 != 0 ? word"),
    (ordered("top-256", "zeros"), "given == 0x80000000u ? 0u : given", "given"),
    (TOP, "indices[j] < indices[i]", "indices[j] > indices[i]"),
    (TOP, "~i < among", "~i <= among"),
    (TOP, "counts.count(least & 255u) > wanted", "counts.count(least & 255u) >= wanted + 1000000"),
    (SORT, "(FALLING ? ~key : key)", "(FALLING ? key : ~key)"),
    (SORT, "i < lane; ++i) total += sums[i]", "i <= lane; ++i) total += sums[i]"),
    (ordered("top-5000", "ties"), "place < kept", "place <= kept"),
    (NUCLEUS, "max(share, 0.0f)", "max(share, 0.5f)"),
    (NUCLEUS, "if (here >= wanted) break;", "if (here > 2 * wanted) break;"),
    (NUCLEUS, "as_type<float>(word) - best", "as_type<float>(word)"),
    (NUCLEUS, "found = loaded(&ends[1])", "found = loaded(&ends[0])"),
    (NUCLEUS, "whole * 0.693359375f", "whole * 0.683359375f"),
    (drawn, "mask[i / 32] >> i % 32", "mask[i / 32] >> (31 - i % 32)"),
    (drawn, "value / temperature", "value * temperature"),
    (drawn, "key < left.edge", "key <= left.edge"),
    (drawn, "key >= given.edge && ", ""),
    (drawn, "list[extent + i]", "list[extent + i] ^ 1"),
    (drawn, "number(key) + gumbel(stream, index)", "number(key)"),
    (drawn, "i % 4 == 3", "i % 4 == 2"),
    (drawn, "told + 12, inputs, pass", "told + 12, inputs, pass ^ 1"),
)
"""What is checked, what is replaced in its kernels, and by what."""


@pytest.mark.parametrize(("name", "number"), BARRIERS)
def test_a_missing_barrier_is_caught(name: str, number: int) -> None:
    with pytest.raises((AssertionError, DeviceLost)):
        ALL[name](Emulator(without_barrier(number), build.TRACED, BACKWARD))


def test_a_barrier_that_orders_too_little_is_caught() -> None:
    """What one thread lists in device memory others read."""
    edit = changed("mem_flags::mem_device | mem_flags::mem_threadgroup", "mem_flags::mem_threadgroup")
    with pytest.raises(DeviceLost, match="a race in device memory"):
        drawn(Emulator(edit, build.TRACED))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[1])
def test_a_mutant_is_caught(mutant: tuple[Callable[[Emulator], None], str, str]) -> None:
    check, old, new = mutant
    launcher = Emulator(changed(old, new))
    with pytest.raises((AssertionError, DeviceLost)) as caught:
        check(launcher)
    assert any(old in text for text in launcher.texts.values()), caught.value
