"""Opening a card: what is refused and with which remedy, and what a driver's version decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import api, tune
from pie_edge.backends.cuda.device import Facts
from pie_edge.errors import BackendUnavailable
from tests.backend import cuda_emulated

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="tells the stand-in what to be")
_DEVICE_UNAVAILABLE = 46


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


def test_what_was_found_with_one_driver_is_not_taken_for_the_next_one_s() -> None:
    """A minor version counts ten."""
    facts = Facts("a card", 0, 90, 132, 1 << 36, 13_000)
    newer = replace(facts, driver=13_010)
    assert tune.served(facts).startswith("for CUDA 13.0, ") and tune.served(newer).startswith("for CUDA 13.1, ")
    assert tune.subject(facts) != tune.subject(newer)
