"""What docs say of kernels' bytes, operations and times on paper is what they come to."""

from __future__ import annotations

import pytest

from benchmarks import roofline
from benchmarks.paper import cuda, metal, work


@pytest.mark.parametrize("section", ["cuda on paper", "metal on paper"])
def test_the_pages_tables_are_what_data_sheets_leave(section: str) -> None:
    page = roofline.PAGE.read_text(encoding="utf-8")
    assert roofline.written(page, section) == roofline.rendered(section), "run `python -m benchmarks.roofline --write`"


def test_a_decode_of_a_matrix_is_bound_by_memory_on_every_device() -> None:
    found = work.product("linear", "4 bits", work.FOURS, 1, "float32")
    assert found.nbytes == 14336 * 4096 * 5 // 8 + 4 * (14336 + 4096)
    for device in (*cuda.CARDS, *metal.CHIPS):
        assert found.seconds(device) == (found.nbytes / device.bandwidth, True)


def test_a_prompt_is_bound_by_arithmetic_and_its_two_halves_are_counted() -> None:
    found = cuda.tile("linear_tile", 512, "tensor")
    assert found.operations == 2 * 2 * 512 * 14336 * 4096
    for card in cuda.CARDS:
        assert found.seconds(card) == (found.operations / card.units["tensor"], False)


def test_a_unit_that_a_device_lacks_has_no_time() -> None:
    lines = work.told([cuda.tile("linear_wgmma", 512, "wgmma")], cuda.CARDS).splitlines()
    assert [cell.strip() for cell in lines[-1].split("|")][-4:-2] == ["–", "–"]


def test_a_states_bytes_do_not_grow_with_rows() -> None:
    one, two, three = (cuda.gated_delta(rows).nbytes for rows in (1, 2, 3))
    assert three - two == two - one < 0.02 * one
