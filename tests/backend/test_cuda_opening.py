"""Opening a card: what is refused and with which remedy, and what a driver's version decides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge import backend_choice
from pie_edge.backends.cuda import api, describe, probe, tune
from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.shared import tune as shared_tune
from pie_edge.cli import doctor
from pie_edge.errors import BackendError, BackendUnavailable
from tests.backend import cuda_emulated
from tests.backend.cuda_emulated import card, emulated
from tests.simt import build

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="tells the stand-in what to be")
_DEVICE_UNAVAILABLE = 46
FIRST, SECOND = "SIMT CPU emulation", "SIMT CPU emulation (2)"


def test_a_card_that_another_process_has_for_itself_is_refused_with_the_remedy() -> None:
    cuda_emulated.fail("cuDevicePrimaryCtxRetain", _DEVICE_UNAVAILABLE)
    with pytest.raises(BackendUnavailable, match=r"DEVICE_UNAVAILABLE \(46\).*--compute-mode=0.*another --device"):
        cuda_emulated.opened()


def test_a_driver_that_lacks_functions_is_refused_by_its_version_where_that_is_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(api._CALLS, "cuOfTheFuture", ())
    with (
        cuda_emulated.driver_version(11_080),
        pytest.raises(BackendUnavailable, match=r"^the NVIDIA driver serves CUDA 11\.8, and 13\.0 is needed; .*r580"),
    ):
        cuda_emulated.opened()
    with pytest.raises(BackendUnavailable, match=r"lacks what backend cuda calls .*cuOfTheFuture.*r580"):
        cuda_emulated.opened()


@pytest.fixture
def as_a_card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in is the system's driver, and its devices aren't known for what they are."""
    monkeypatch.setattr(api, "LIBRARY", str(build.driver()))
    monkeypatch.setattr(probe, "LIBRARY", str(build.driver()))
    monkeypatch.setattr(probe, "EMULATION", "no such device")
    with emulated(devices=2):
        yield


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (card(0, seen=61), "has compute capability 6.1, and backend cuda needs 7.5 or newer"),
        (card(0, mode=3, held=True), "is held by another process for itself"),
        (card(0, mode=2), "is set to run no process"),
    ],
    ids=["too old", "held", "for no process"],
)
@pytest.mark.usefixtures("as_a_card")
def test_a_card_that_can_t_be_used_is_passed_over_for_the_next_one_and_doctor_agrees(
    first: AbstractContextManager[None], why: str
) -> None:
    with first:
        chosen, found = backend_choice.choose(), probe.probe()
        told = doctor._verdict("cuda", asdict(found) | {"details": describe.describe()})
        assert (chosen.backend, chosen.devices) == ("cuda", (SECOND,))
        assert (told.works, told.found) == (True, SECOND)
        assert told.details[0] == f"cuda:0, {FIRST}" and "refused: " in told.details[1]
        assert told.details[2].startswith(f"cuda:1, {SECOND}: ")
        with pytest.raises(BackendUnavailable, match=f"^{FIRST} {why}; .* may use 1: {re.escape(SECOND)}$"):
            backend_choice.choose("cuda", "0")


@pytest.mark.usefixtures("as_a_card")
def test_where_no_card_can_be_used_auto_goes_on_to_the_next_backend_with_the_reasons() -> None:
    with card(0, seen=61), card(1, mode=3, held=True):
        chosen, found = backend_choice.choose(), probe.probe()
    assert chosen.backend != "cuda"
    (reason,) = [passed.reason for passed in chosen.passed_over if passed.backend == "cuda"]
    assert "compute capability 6.1" in reason and f"{SECOND} is held by another process" in reason
    assert not doctor._verdict("cuda", asdict(found) | {"details": []}).works


@pytest.mark.usefixtures("as_a_card")
def test_a_card_for_one_process_that_nobody_holds_is_taken_and_not_kept_by_looking_at_it() -> None:
    made, given = "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"
    before = cuda_emulated.calls(made, given)
    with card(0, mode=3):
        assert backend_choice.choose().device == FIRST
    after = cuda_emulated.calls(made, given)
    assert after[0] - before[0] == after[1] - before[1] > 0


def test_errors_lose_a_device_where_nvidia_says_that_they_stick() -> None:
    """It says so of most; not of faults of memory and links, of a context that has gone, nor of what it can't tell."""
    driver = pytest.importorskip("cuda.bindings.driver")
    sticks = ("any further CUDA work will return the same error", "context cannot be used anymore")
    told = {status: " ".join((status.__doc__ or "").split()) for status in driver.CUresult}
    said = {status for status, text in told.items() if any(words in text for words in sticks)}
    if len(said) < 3:
        pytest.skip("these bindings have no word of what a status means")
    names = ("ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE", "CONTEXT_IS_DESTROYED", "UNKNOWN")
    said |= {getattr(driver.CUresult, f"CUDA_ERROR_{name}") for name in names}
    assert {int(status) for status in said} == api.LOST


def test_what_was_found_with_one_driver_is_not_taken_for_the_next_one_s() -> None:
    """A minor version counts ten."""
    facts = Facts("a card", 0, 90, 132, 1 << 36, 13_000)
    newer = replace(facts, driver=13_010)
    assert tune.served(facts).startswith("for CUDA 13.0, ") and tune.served(newer).startswith("for CUDA 13.1, ")
    assert tune.subject(facts) != tune.subject(newer)


def test_a_tuning_that_could_not_be_kept_says_so_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = cuda_emulated.opened()
    bench = tune.bench(backend._live.session)
    monkeypatch.setattr(shared_tune, "tune", lambda *given, **named: pytest.fail("it measures"))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(
        BackendError, match=r"emulation sm_86 can't be kept in .*cache \(it can't be written\).*PIE_EDGE_CACHE"
    ):
        shared_tune.tune_and_keep(bench, tmp_path / "cache", print)
    assert bench.session._closed  # as where it measures
