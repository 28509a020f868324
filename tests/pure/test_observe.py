"""Observed attention: what the op means, by other means than the reference's own, and how a Program comes to have it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pie_edge.errors import Unsupported
from pie_edge.program import reference
from pie_edge.program.expand import expand
from pie_edge.program.observe import KIND, MASSES, observe
from pie_edge.program.ops import KINDS, Role
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from tests.backend import mass_cases
from tests.pure.test_program import tiny_program

BUCKET = Bucket(4, 2, 2, 8, observed=2, masses=16)


@pytest.mark.parametrize("name", mass_cases.NAMES)
def test_a_mass_is_what_attention_gives_for_values_that_say_which_page_they_are_on(name: str) -> None:
    case = mass_cases.build(name)
    masses, step = case.expected()[MASSES][0], reference.unpack(case.program, case.block)
    pages = [attended_pages(case, layer) for layer in (0, 1)]
    for start, end, row, words in zip(
        step["mass_starts"], step["mass_starts"][1:], step["mass_rows"], step["mass_layers"], strict=False
    ):
        expected = sum((pages[layer][row] for layer in (0, 1) if words[0] >> layer & 1), np.zeros(len(pages[0][0])))
        count = sum(int(word).bit_count() for word in words)
        np.testing.assert_allclose(
            masses[start:end], expected[: max(int(end) - int(start), 0)] / max(count, 1), atol=2e-6
        )


def attended_pages(case: mass_cases.MassCase, layer: int) -> np.ndarray:
    """[rows, most entries]: the mean over heads of ``attention`` over values that are 1 in one page entry and 0 elsewhere."""
    op = [op for op in case.program.ops if op.kind == "attention"][layer]
    cut = {name: case.rows if name in case.by_row else None for name in case.states}
    states = {name: array[: cut[name]].copy() for name, array in case.states.items()}
    given = reference.run(case.program, states | {name: s.dense() for name, s in case.sources.items()}, case.block)
    firsts, ends = given["page_starts"][:-1], given["page_starts"][1:]
    found = []
    for entry in range(int((ends - firsts).max())):
        values = np.zeros_like(states["v"])
        values[
            given["pages"][[first + entry for first, end in zip(firsts, ends, strict=True) if first + entry < end]]
        ] = 1
        (y,) = reference._attention(op, *((given | {"v": values})[name] for name in op.inputs))
        found.append(y.reshape(case.rows, op.integer("heads"), -1)[:, :, 0].mean(axis=1))
    return np.stack(found, axis=1)


def test_masses_of_a_row_are_one_in_all_and_none_where_it_sees_nothing_or_chose_no_layer() -> None:
    case = mass_cases.build("attention batch")
    step = reference.unpack(case.trace.build(), case.block)
    masses, starts = case.expected()[MASSES][0], step["mass_starts"]
    totals = [masses[a:b].sum() for a, b in itertools.pairwise(starts) if b > a]
    shares = [1.0, 1.0, 1.0, 1 / 3, 0.0]
    np.testing.assert_allclose(totals, [shares[i % 5] for i in range(len(totals))], atol=1e-5)


def test_observing_adds_one_op_a_layer_and_their_sum_and_leaves_the_rest_as_it_is() -> None:
    plain = tiny_program(replace(BUCKET, observed=0, masses=0))
    observed = observe(tiny_program(BUCKET), BUCKET)
    added = [op for op in observed.ops if op.outputs[0].startswith("mass")]
    assert [op.kind for op in added] == [KIND, KIND, "add"]
    assert tuple(op for op in observed.ops if op not in added) == plain.ops
    (output,) = observed.by_role(Role.OUTPUT)
    assert (output.name, output.shape) == (MASSES, (1, BUCKET.masses))


def test_every_input_of_the_op_is_what_its_row_of_the_table_says() -> None:
    program = observe(tiny_program(replace(BUCKET, mask=3)), replace(BUCKET, mask=3))
    op = next(op for op in program.ops if op.kind == KIND)
    kind = KINDS[KIND]
    assert op.inputs[3:] == tuple(name for name in (*kind.inputs[3:], *kind.optional) if name != "sinks")
    assert tuple(name for name, _ in op.attributes) == kind.attributes


def test_a_backend_without_the_op_says_so_by_name() -> None:
    with pytest.raises(Unsupported, match="needs op 'attention_mass'"):
        expand(observe(tiny_program(BUCKET), BUCKET), frozenset(KINDS) - {KIND})


def test_a_bucket_without_room_for_observed_rows_is_refused() -> None:
    words = mass_cases.layer_words({0})
    inputs = StepInputs([1], [0], [0], [8], [0, 1], [0, 1], [1], [1], [1], [0], [0, 0], (), (), [0], [0, 1], words)
    for bucket in (Bucket(1, 1, 1, 1), Bucket(1, 1, 1, 1, observed=1)):
        with pytest.raises(ValueError, match="observes 1 rows over 1 page entries"):
            StepLayout(bucket).pack(inputs)


def test_a_model_without_attention_or_with_too_many_layers_cannot_be_observed() -> None:
    program = tiny_program(BUCKET)
    attention = next(op for op in program.ops if op.kind == "attention")
    for ops, layers in (((), 0), ((attention,) * 257, 257)):
        with pytest.raises(ValueError, match=f"has {layers} layers with attention; 1 to 256 can be observed"):
            observe(replace(program, ops=ops), BUCKET)
