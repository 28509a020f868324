"""The harness of benchmarks/: that its figures are what it says they are. Nothing here is timed."""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness, parity, parity_page, startup, startup_stages, steps
from benchmarks.engines import Opened, Stream
from benchmarks.null_backend import NullBackend
from benchmarks.processes import PeerMissingError, Process, environment
from benchmarks.trace import Span, Tracer, locate, own_seconds
from pie_edge.model import llama
from tests.support.oracle_run import Loaded, log_probabilities
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import SPEC, open_tiny, random_weights

PROMPT = [3, 1, 4, 1, 5]


def test_sides_take_turns_and_keep_their_figures_apart() -> None:
    order: list[str] = []

    def side(name: str, value: float) -> harness.Measure:
        return lambda: order.append(name) or value

    found = harness.in_turns({"ours": side("ours", 1.0), "peer": side("peer", 2.0)}, 3)
    assert order == ["ours", "peer"] * 3
    assert found == {"ours": [1.0] * 3, "peer": [2.0] * 3}


def test_ratios_are_taken_within_a_round() -> None:
    # Both were five times slower in the second round: that is no spread of their ratio.
    assert harness.ratio([10, 2, 10], [5, 1, 5]) == harness.Summary(2, 2, 2)


def test_a_summary_shows_the_median_and_the_extremes() -> None:
    assert harness.Summary.of([5, 1, 2]).show(1) == "2.0 (1.0 to 5.0)"


def test_the_page_of_parity_is_what_its_own_rows_render_to_and_all_are_within_their_tolerances() -> None:
    page = parity_page.PAGE.read_text(encoding="utf-8")
    rows = parity_page.read(page)
    assert {("smollm2-135m", "cpu"), ("gemma3-270m", "cpu")} <= {(row.model, row.backend) for row in rows}
    assert parity_page.merge(page, []) == page
    assert [row.key for row in rows if row.within != "yes"] == []
    assert all(float(row.reference_error) <= float(row.tolerance) for row in rows)


ROW = parity_page.Row("m", "b", "fast", "9 of 10", "none", "0.1", "0.01", "0.02", "yes")
PAGE = f"before\n{parity_page.BEGIN}\n{parity_page.render([ROW])}\n{parity_page.END}\nafter\n"


def test_a_run_replaces_its_own_rows_and_leaves_the_others() -> None:
    other, newer = replace(ROW, backend="c"), replace(ROW, matched="10 of 10")
    page = parity_page.merge(parity_page.merge(PAGE, [other]), [newer])
    assert parity_page.read(page) == [newer, other]
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda page: page.replace(parity_page.END, ""), "lacks"),
        (lambda page: page.replace("| mode |", "| |"), "header"),
        (lambda page: page.replace("| fast |", "|"), "8 cells"),
    ],
)
def test_a_page_of_another_form_is_refused(damage, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        parity_page.read(damage(PAGE))


STEP = {"ids": [7, 8, 9], "logprobs": [-1.0, -1.25, -3.0]}


def test_a_difference_tells_the_oracles_gap_and_what_the_choice_costs_by_the_reference() -> None:
    reference = np.array([-1.2, -1.1, -3.0])
    assert parity.difference(STEP, reference, 8) == parity.Difference(0.25, 0.0)
    assert parity.difference(STEP, reference, 9) == parity.Difference(0.25, pytest.approx(1.9))
    assert parity.difference(STEP, reference, 4).regret == math.inf


@pytest.mark.parametrize(
    ("error", "regret", "within"), [(1e-5, 0.0, "yes"), (1e-3, 0.0, "**no**"), (1e-5, 1e-3, "**no**")]
)
def test_a_row_is_within_its_tolerance_only_if_errors_and_choices_are(error: float, regret: float, within: str) -> None:
    verdicts = [parity.Verdict(4, None, 0.0, 0.0), parity.Verdict(2, parity.Difference(0.5, regret), 0.5, error)]
    row = parity.row("m", "reference", "exact", verdicts, 8)
    assert (row.matched, row.within) == ("6 of 8", within)
    assert row.differences.startswith("1 of 2 prompts: gap 0.5")


def _case() -> tuple[parity.Case, parity.Floats]:
    """A prompt of the tiny model as an oracle file would have it, made of whole passes of the reference."""
    tokens = list(PROMPT)
    for _ in range(6):
        tokens.append(int(_rows(tokens)[-1].argmax()))
    rows = _rows(tokens[:-1])[len(PROMPT) - 1 :]
    ids = np.argsort(-rows, axis=1)[:, :5]
    best = np.take_along_axis(rows, ids, axis=1)
    told = [{"ids": i.tolist(), "logprobs": p.tolist()} for i, p in zip(ids, best, strict=True)]
    return {"prompt_ids": PROMPT, "greedy_ids": tokens[len(PROMPT) :], "steps": told}, best


def _rows(tokens: list[int]) -> parity.Floats:
    return log_probabilities(Loaded(SPEC, llama, random_weights()), tokens)


def test_a_faithful_engine_matches_every_token_and_a_false_oracle_is_noticed() -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        engine = await open_tiny(backend)
        case, reference = _case()
        faithful = await parity.judge(Opened(engine, backend), case, reference)
        assert (faithful.matched, faithful.difference) == (6, None)
        assert max(faithful.oracle_error, faithful.reference_error) < 1e-4
        case["greedy_ids"][2] = case["steps"][2]["ids"][1]
        changed = await parity.judge(Opened(engine, backend), case, reference)
        assert changed.matched == 2
        assert changed.difference is not None
        # What follows the changed token follows from it: the stored log probabilities are of another text.
        assert changed.oracle_error > 0.01
        await engine.close()

    asyncio.run(test())


def test_the_device_that_computes_nothing_answers_every_step() -> None:
    async def test() -> None:
        engine = await open_tiny(NullBackend())
        assert await Stream(engine.open_space("null", 0), 32).generate(PROMPT, 8) == [0] * 8
        await engine.close()

    asyncio.run(test())


@pytest.mark.parametrize("path", [*startup_stages.STAGES, *steps.STAGES])
def test_every_traced_stage_is_there(path: str) -> None:
    holder, name, _ = locate(path)
    assert callable(getattr(holder, name))


def test_a_stage_that_is_gone_is_refused_when_it_is_wrapped() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        Tracer().wrap({"benchmarks.harness:Summary.nothing": "nothing"})


class Worked:
    def plain(self) -> int:
        return self.inner() + 1

    def inner(self) -> int:
        time.sleep(0.002)
        return 1

    async def awaited(self) -> int:
        await asyncio.sleep(0.002)
        return 3

    @classmethod
    def made(cls) -> Worked:
        return cls()


def test_wrapped_functions_do_what_they_did_and_leave_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("plain", "inner", "awaited", "made")
    for name in names:
        monkeypatch.setattr(Worked, name, vars(Worked)[name])  # put back afterwards
    tracer = Tracer()
    tracer.wrap({f"{__name__}:Worked.{name}": name for name in names})
    worked = Worked.made()
    assert (worked.plain(), asyncio.run(worked.awaited())) == (2, 3)
    assert [span.title for span in tracer.spans] == ["made", "inner", "plain", "awaited"]
    assert all(span.seconds >= 0.002 for span in tracer.spans[1:])


def test_own_time_leaves_out_what_was_called_on_the_same_thread() -> None:
    spans = [Span("outer", "a", 0, 10), Span("inner", "a", 2, 5), Span("inner", "a", 6, 7), Span("other", "b", 0, 10)]
    assert own_seconds(spans) == {"outer": 6, "inner": 4, "other": 10}


def test_imports_are_read_from_the_interpreters_own_report() -> None:
    told = (
        "import time: self [us] | cumulative | package\n"
        "import time:       250 |        900 |   zlib\n"
        "import time:       650 |        650 | numpy._core\n"
        "noise\n"
    )
    assert startup.parse_imports(told) == [("numpy._core", 650e-6), ("zlib", 250e-6)]


def child(text: str) -> Process:
    return Process("child", [sys.executable, "-c", text])


def test_a_side_answers_what_it_is_asked_and_its_largest_memory_is_kept() -> None:
    with child(
        "import json, sys\n"
        "print(json.dumps({'description': 'doubles', 'memory': 5}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    print(json.dumps({'value': 2 * asked['number'], 'memory': asked['number']}), flush=True)\n"
    ) as side:
        assert side.description == "doubles"
        assert [side.measure("double", number=number) for number in (3, 9, 4)] == [6, 18, 8]
        assert side.memory == 9


def test_a_side_that_dies_is_told_with_its_last_words() -> None:
    with pytest.raises(ChildProcessError, match=r"child: it ended with status 3; its last words:\nno such model"):
        child("import sys; print('no such model', file=sys.stderr); sys.exit(3)")


def test_a_peer_that_is_not_installed_is_told_apart_from_one_that_fails() -> None:
    with pytest.raises(PeerMissingError, match="No module named 'llama_cpp'"):
        child("""print('{"missing": "No module named \\'llama_cpp\\'", "memory": null}')""")


def test_measured_processes_do_not_get_another_processors_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert "OPENBLAS_CORETYPE" not in environment()
    assert environment()["OPENBLAS_NUM_THREADS"] == "2"


def test_a_start_that_fails_or_says_nothing_is_an_error() -> None:
    with pytest.raises(ChildProcessError, match="status 1"):
        startup.start([sys.executable, "-c", "raise SystemExit(1)"])
    with pytest.raises(ChildProcessError, match="status 0"):
        startup.start([sys.executable, "-c", ""])
    found = startup.start([sys.executable, "-c", "print('token', flush=True)"])
    assert 0 < found.first <= found.end


@pytest.mark.skipif(shutil.which("node") is None, reason="node isn't installed")
def test_a_peer_that_is_not_installed_has_no_start_to_be_timed(tmp_path: Path) -> None:
    script = shutil.copy(Path(startup.__file__).with_name("sides") / "llama_cpp.mjs", tmp_path)
    with pytest.raises(ChildProcessError, match="node-llama-cpp"):
        startup.start(["node", script, "model.gguf", "1", "vulkan", startup.PROMPT])
