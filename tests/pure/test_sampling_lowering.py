"""The planner's kernels, run in NumPy one scalar operation at a time, against the node reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pie_edge.program.ops import Program
from pie_edge.sampling import parse
from pie_edge.sampling.dialects.kernel import Call, Kernel
from pie_edge.sampling.dialects.planner import plan
from pie_edge.sampling.dialects.scalar import Scalar
from tests.pure.test_sampling_nodes import RUNS, of_one_node
from tests.support.epilogue_graphs import Case, cases
from tests.support.epilogues import Wire, arrays_of, check_results, random_arrays
from tests.support.plan_interpreter import run_plan


def check(program: Program, arrays: dict[str, Any], round_bytes: int = 1 << 26) -> None:
    check_results(run_plan(plan(program, round_bytes), program, arrays), program, arrays)


@pytest.mark.parametrize("node", RUNS, ids=[f"{i}-{r[0]}" for i, r in enumerate(RUNS)])
def test_a_node_means_what_the_reference_says(node: Any) -> None:
    epilogue, passes = of_one_node(node)
    check(*arrays_of(epilogue, passes, spare=2))
    check(*arrays_of(epilogue, passes, spare=2), round_bytes=1)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases(), st.integers(0, 2**32 - 1), st.sampled_from([1, 1 << 26]))
def test_any_epilogue_means_what_the_reference_says(case: Case, seed: int, round_bytes: int) -> None:
    epilogue = parse(case.text, vocabulary=case.vocabulary, rows=case.rows)
    parameters = [(given.dtype, given.shape, given.bound) for given in case.parameters]
    check(*random_arrays(epilogue, parameters, passes=2, spare=1, seed=seed), round_bytes=round_bytes)


def steps(*outputs: Any, wire: Wire, vocabulary: int = 1000) -> list[Any]:
    return list(plan(parse(wire.text(*outputs), vocabulary=vocabulary, rows=1).program(1)).steps)


def test_a_temperature_draw_with_its_entropy_and_likelihood_is_one_kernel() -> None:
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.parameter("f32", []))
    (kernel,) = steps(wire.add("gumbel_max", x), wire.add("entropy", x), wire.add("logsumexp", x), wire=wire)
    assert [len(loop.reductions) for loop in kernel.loops] == [2, 2]


def test_a_softmax_is_one_kernel_of_three_loops_and_stores_its_result_alone() -> None:
    wire = Wire()
    (kernel,) = steps(wire.add("softmax", wire.add("logits")), wire=wire)
    assert [(len(loop.reductions), len(loop.stores)) for loop in kernel.loops] == [(1, 0), (1, 0), (0, 1)]


def test_a_value_that_an_algorithm_reads_is_the_one_that_is_compared_later() -> None:
    # Made again it might differ in its last bit, and the k-th largest entry would not reach itself.
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.add("constant", value=0.7))
    least = wire.add("kth_largest", x, wire.add("constant", value=5), keepdims=True)
    first, call, last = steps(
        wire.add("reduce_sum", wire.add("cast", wire.add("ge", x, least), dtype="i32")), wire=wire
    )
    assert isinstance(first, Kernel)
    assert isinstance(call, Call)
    divisions = [s for loop in last.loops for r in loop.reductions for s in reachable(r.value) if s.op == "div"]
    assert not divisions


def reachable(scalar: Scalar) -> list[Scalar]:
    return [scalar, *(found for argument in scalar.arguments for found in reachable(argument))]


def test_an_epilogue_that_doubles_its_own_terms_at_each_step_stays_small() -> None:
    wire = Wire()
    x = wire.add("logits")
    for _ in range(120):
        # The node before at two places: 2^120 terms if they were written out.
        x = wire.add("add", wire.add("slice", x, start=1), wire.add("slice", x, stop=-1))
    found = steps(x, wire=wire)
    assert sum(len(reads(kernel)) for kernel in found) < 20000


def test_reductions_of_reductions_are_split_into_kernels_of_a_few_loops() -> None:
    wire = Wire()
    x = logits = wire.add("logits")
    for _ in range(60):
        x = wire.add("mul", wire.add("softmax", x), logits)
    found = steps(x, wire=wire)
    assert len(found) > 1
    assert all(len(kernel.loops) <= 16 for kernel in found)


def reads(kernel: Kernel) -> set[int]:
    seen: set[int] = set()
    pending = [store.value for loop in kernel.loops for store in loop.stores]
    while pending:
        scalar = pending.pop()
        if scalar.number not in seen:
            seen.add(scalar.number)
            pending += scalar.arguments
    return seen


def test_a_hundred_nodes_in_a_row_need_no_deep_recursion() -> None:
    wire = Wire()
    x = wire.add("logits")
    for _ in range(500):
        x = wire.add("neg", x)
    assert len(steps(x, wire=wire)) >= 1


def test_passes_share_rounds_as_memory_allows() -> None:
    wire = Wire()
    node = wire.add("sort", wire.add("logits"), descending=True)
    program = parse(wire.text([node, 1]), vocabulary=1000, rows=1).program(7)
    small, large = plan(program, 1), plan(program)
    assert list(small.rounds) == [0, 1, 2, 3, 4, 5, 6]
    assert list(large.rounds) == [0]
    assert small.words < large.words
