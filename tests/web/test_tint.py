"""Tint, the compiler of Chromium and of everything that is built on Dawn, takes every shader of the wgpu backend.

naga, wgpu's own, compiles what the kernel tests run. It doesn't ask what WGSL asks beyond that: that barriers are met by all
invocations of a workgroup, as far as a compiler can see. So the texts of all variants, also of those for cards, are shown to a
real browser; of each kernel and layout one becomes a pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.wgpu.lower import KINDS
from pie_edge.backends.wgpu.plan import Layout
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.backends.wgpu.templates import FOLDER
from tests.support.wgsl_programs import epilogues, models, op_cases
from tests.support.wgsl_texts import VARIANTS, Collector
from tests.web.chromium import chromium, told

PAGE = Path(__file__).with_name("tint.html")
KERNEL = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size({size})
fn main(@builtin(local_invocation_index) local: u32) {{
    {body}
    x[local] = 1.0;
}}
"""
BROKEN = {
    "a barrier that not all meet": KERNEL.format(size=8, body="if (local > 3u) { workgroupBarrier(); }"),
    "a barrier after a return by what a writable buffer holds": KERNEL.format(
        size=8, body="if (x[0] > 1.0) { return; } workgroupBarrier();"
    ),
    "a number where a vector is wanted": KERNEL.format(size=8, body="let four: vec4<f32> = 1.0;"),
    "more invocations than WebGPU promises": KERNEL.format(size=512, body=""),
}


@dataclass(frozen=True)
class Verdicts:
    adapter: str
    features: frozenset[str]
    errors: Mapping[str, tuple[str, ...]]
    """By the shader's digest, or the name of a broken one."""


@pytest.fixture(scope="module")
def shaders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Layout], Shader]:
    """Of all variants. Models are compiled with all that a device may have, and with nothing."""
    found: dict[tuple[str, Layout], Shader] = {}
    cases, drawn = list(op_cases()), list(epilogues())
    folder = tmp_path_factory.mktemp("models")
    tiny = {odd: list(models(folder / str(odd), KINDS, odd)) for odd in (True, False)}
    for variant in VARIANTS:
        collector = Collector(variant)
        for program, sources in cases:
            collector.compile(program, sources)
        if variant.subgroups == variant.halves:
            for program, sources in tiny[collector.tuning.odd_bits]:
                collector.compile(program, sources)
            for program in drawn:
                collector.compile(program, {})
        found |= collector.shaders
    return found


def _items(shaders: Mapping[tuple[str, Layout], Shader]) -> Iterator[dict[str, Any]]:
    """What the page gets: each text, the shortest of each kernel and layout to be a pipeline, and the broken ones."""
    shortest: dict[tuple[str, Layout], str] = {}
    for (digest, layout), shader in sorted(shaders.items(), key=lambda item: len(item[1].code)):
        # Fused kernels of epilogues have names of their own.
        kernel = shader.name if (FOLDER / f"{shader.name}.wgsl").exists() else "fused"
        shortest.setdefault((kernel, layout), digest)
    whole = set(shortest.values())
    for (digest, layout), shader in shaders.items():
        yield {"key": digest, "code": shader.standard, "layout": layout, "whole": digest in whole}
    for name, code in BROKEN.items():
        yield {"key": name, "code": code, "layout": [(0, "storage")], "whole": True}


@pytest.fixture(scope="module")
def verdicts(shaders: dict[tuple[str, Layout], Shader], tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    program = chromium()
    if program is None:
        pytest.skip("Chromium is not installed; scripts/debian-packages installs it on Debian")
    items = list(_items(shaders))
    files = {"/shaders.json": json.dumps(items).encode()}
    said = told(program, PAGE, files, tmp_path_factory.mktemp("profile"), 240)
    if "failed" in said:
        pytest.skip(f"this Chromium has no WebGPU: {said['failed']}")
    errors = {item["key"]: tuple(found["errors"]) for item, found in zip(items, said["found"], strict=True)}
    return Verdicts(" ".join(said["adapter"]), frozenset(said["features"]), errors)


def test_tint_takes_every_shader(shaders: dict[tuple[str, Layout], Shader], verdicts: Verdicts) -> None:
    assert len(shaders) > 2000
    refused = {
        f"{shader.name}: {error}"
        for (digest, _), shader in shaders.items()
        if not _unknown(shader, verdicts)
        for error in verdicts.errors[digest]
    }
    assert not refused, "\n".join(sorted(refused)[:20])


@pytest.mark.parametrize("name", BROKEN)
def test_tint_refuses_what_is_broken(verdicts: Verdicts, name: str) -> None:
    assert verdicts.errors[name]


def test_subgroups_are_among_what_it_has_seen(shaders: dict[tuple[str, Layout], Shader], verdicts: Verdicts) -> None:
    assert sum("enable subgroups;" in shader.standard for shader in shaders.values()) > 200
    if "subgroups" not in verdicts.features:
        pytest.skip(f"{verdicts.adapter} has no subgroups: shaders with them were not validated")


def _unknown(shader: Shader, verdicts: Verdicts) -> bool:
    """Whether it needs what the browser's adapter doesn't have: then it says nothing else of it."""
    needs = {"shader-f16": "enable f16;", "subgroups": "enable subgroups;"}
    return any(word in shader.standard for name, word in needs.items() if name not in verdicts.features)
