"""Plans are data: what runs for a step, as a list that a native encoder and a browser take alike."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.wgpu.absorb import Product, absorb
from pie_edge.backends.wgpu.shader import shader
from pie_edge.backends.wgpu.templates import expand
from pie_edge.model import llama
from pie_edge.model.spec import Cache
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType
from pie_edge.program.ops import Program, Role
from pie_edge.program.step import Bucket, StepLayout
from pie_edge.program.trace import Trace
from tests.backend import openers
from tests.backend.cases import random_weight
from tests.support.tiny import SPEC, random_weights

GOLDEN = Path(__file__).parents[1] / "data" / "wgpu-plan.json"


def _program() -> Program:
    """A norm, two products of it, a gate, and a sum: what a layer's second half is."""
    t, layout = Trace("golden"), StepLayout(Bucket(4, 2, 1, 2))
    t.step(layout)
    x = t.state("x", DType.F32, (4, 64))
    total = ops.add(t, x, x)
    normed = ops.rms_norm(t, total, t.weight("norm", (64,), Dense(DType.F32)), eps=1e-5)
    encoding = Affine(4, 32, DType.F16, None)
    gate, up = (ops.linear(t, normed, t.weight(name, (96, 64), encoding)) for name in ("gate", "up"))
    down = ops.linear(t, ops.glu(t, gate, up, act="silu"), t.weight("down", (64, 96), encoding))
    y = ops.add(t, down, total)
    built = t.build()
    return replace(built, values={**built.values, y.name: replace(y, role=Role.OUTPUT)})


async def _plan() -> dict[str, Any]:
    backend = await asyncio.to_thread(openers.wgpu)
    try:
        program, rng = _program(), np.random.default_rng(1)
        buffers: dict[str, Any] = {"x": await backend.allocate(4 * 64 * 4, Role.STATE)}
        for value in program.by_role(Role.WEIGHT):
            assert value.encoding is not None
            buffers[value.name] = await backend.load(value, random_weight(rng, value.shape, value.encoding))
        executable = await backend.compile(program, buffers)
        counts = {"rows": 1, "sampled": 1, "sequences": 1, "longest": 0}
        plan: dict[str, Any] = executable.recorded.plan_for(counts).as_json()
        return plan
    finally:
        await backend.close()


def test_a_plan_is_the_golden_one() -> None:
    """Kernels' text left out: it changes with its sources. Remove the file to have it written anew."""
    plan = asyncio.run(_plan())
    for kernel in plan["shaders"]:
        assert "@compute" in kernel.pop("code")
        assert len(kernel.pop("digest")) == 64
    assert json.loads(json.dumps(plan)) == plan
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
        pytest.fail(f"{GOLDEN} was not there; it is now, look at it")
    assert plan == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_a_layer_is_six_launches() -> None:
    """Queries, keys and values; rope and append; attention; out and sum; gate and up; down and sum."""
    encodings = {name: Dense(DType.F32) for name in random_weights()}
    program = llama.trace(SPEC, Bucket(1, 1, 1, 4), Cache(8, 16, DType.F16, 1, 1), encodings)
    fused = absorb(fuse(program, lambda names: True), lambda name: True)
    kinds = [op.kind for op in fused.ops]
    layer = ["product", "rope_append", "attention", "product", "product", "product"]
    assert kinds[1 : 1 + 6 * SPEC.layers] == layer * SPEC.layers


def test_a_norm_that_others_read_too_stays() -> None:
    t = Trace("norm")
    x = ops.add(t, state := t.state("x", DType.F32, (2, 64)), state)
    normed = ops.rms_norm(t, x, t.weight("n", (64,), Dense(DType.F32)), eps=1e-5)
    product = ops.linear(t, normed, t.weight("w", (64, 64), Dense(DType.F32)))
    y = ops.add(t, product, normed)
    built = t.build()
    program = replace(built, values={**built.values, y.name: replace(y, role=Role.OUTPUT)})
    fused = absorb(program, lambda name: True)
    assert [op.kind for op in fused.ops] == ["add", "rms_norm", "product"]
    assert Product.of(fused.ops[-1]).residual == normed.name


def test_templates_write_out_what_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pie_edge.backends.wgpu.templates.FOLDER", tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "inner.wgsl").write_text("a${i}\n")
    (tmp_path / "outer.wgsl").write_text(
        "#for i in N\n#if i % 2\n#include inner\n#elif FLAG\nf${i + 1}\n#else\n${f'{i:02}'}\n#end\n#end\n"
    )
    head = "const N: u32 = 4u;\nconst FLAG: bool = {};\n"
    assert expand("outer", {"N": 4, "FLAG": False}) == head.format("false") + "00\na1\n02\na3\n"


def test_what_a_browser_gets_enables_subgroups_where_it_uses_them() -> None:
    """wgpu-native's compiler refuses the word, and needs none."""
    told = {"LOCAL": 8, "WIDTH": 64, "EPS": 1e-5, "OFFSET": 0.0, "ADD": False}
    with_subgroups, without = (shader("rms_norm", SUBGROUPS=chosen, **told) for chosen in (True, False))
    assert with_subgroups.standard == "enable subgroups;\n" + with_subgroups.code
    assert without.standard == without.code
