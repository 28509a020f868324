"""What opening a wgpu device does once and remembers: the self-test, and tuning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.shared import examination
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.trial import Bench
from pie_edge.backends.wgpu import tune
from pie_edge.backends.wgpu.absorb import Product, absorb
from pie_edge.backends.wgpu.api import Handle
from pie_edge.backends.wgpu.backend import Live, open_wgpu
from pie_edge.backends.wgpu.device import Facts, open_device, survey
from pie_edge.backends.wgpu.lower import KINDS
from pie_edge.backends.wgpu.session import Session
from tests.backend.opening_on_device import *  # noqa: F403
from tests.backend.opening_on_device import Api


@contextmanager
def opened_bench() -> Iterator[Bench]:
    device, facts = open_device()
    session = Session(device, facts, 1 << 28)
    yield tune.bench(session, facts.max_binding)
    session.close()


def as_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str = "") -> tuple[Handle, Facts]:
        device, facts = open_device(name)
        return device, replace(facts, kind="DiscreteGPU")

    monkeypatch.setattr("pie_edge.backends.wgpu.backend.open_device", opened)


def other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "kernels_digest", lambda: "other kernels")


@pytest.fixture
def api() -> Api:
    return Api("wgpu", open_wgpu, Live, lambda: survey()[0], opened_bench, as_a_card, other_kernels)


def test_the_self_test_covers_every_kind_fused_ones_included() -> None:
    program = examination.examination(halves=True).program
    fused = absorb(fuse(program, lambda names: True), lambda name: True)
    covered = {op.kind for op in (*program.ops, *fused.ops)}
    kinds = (KINDS | {"product", "rope_append"}) - {"copy_pages", "copy_slots"}
    assert covered - {"linear_group", "gated_linear"} == kinds
    products = [Product.of(op) for op in fused.ops if op.kind == "product"]
    assert any(one.norm and one.residual for one in products)
    assert any(one.act for one in products)
    assert any(one.biases for one in products)
