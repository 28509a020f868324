"""Tint, the compiler of Chromium and of everything that is built on Dawn, takes every shader of the wgpu backend.

naga, wgpu's own, compiles what the kernel tests run. It doesn't ask what WGSL asks beyond that: that barriers are met by all
invocations of a workgroup, as far as a compiler can see. So the texts of all variants, also of those for cards, are shown to a
real browser; of each kernel and layout one becomes a pipeline. What its adapter lacks (SwiftShader has no halves), Dawn's
null device under Node has.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
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

pytestmark = pytest.mark.timeout(900)  # a minute on a quiet machine

HERE = Path(__file__).resolve().parent
SUBGROUPS, HALVES = "enable subgroups;", "enable f16;"
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


def _items(shaders: Mapping[tuple[str, Layout], Shader]) -> list[dict[str, Any]]:
    """What is judged: each text, the shortest of each kernel and layout to be a pipeline, and the broken ones."""
    shortest: dict[tuple[str, Layout], str] = {}
    for (digest, layout), shader in sorted(shaders.items(), key=lambda item: len(item[1].code)):
        # Fused kernels of epilogues have names of their own.
        kernel = shader.name if (FOLDER / f"{shader.name}.wgsl").exists() else "fused"
        shortest.setdefault((kernel, layout), digest)
    whole = set(shortest.values())
    found: list[dict[str, Any]] = [
        {"key": digest, "code": shader.standard, "layout": layout, "whole": digest in whole}
        for (digest, layout), shader in shaders.items()
    ]
    broken = ({"key": name, "code": code, "layout": [(0, "storage")], "whole": True} for name, code in BROKEN.items())
    return [*found, *broken]


def _verdicts(items: Iterable[Mapping[str, Any]], said: Mapping[str, Any]) -> Verdicts:
    errors = {item["key"]: tuple(found) for item, found in zip(items, said["errors"], strict=True)}
    return Verdicts(said["adapter"], frozenset(said["features"]), errors)


@pytest.fixture(scope="module")
def verdicts(shaders: dict[tuple[str, Layout], Shader], tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Chromium's."""
    program = chromium()
    if program is None:
        pytest.skip("Chromium is not installed; scripts/debian-packages installs it on Debian")
    items = _items({key: shader for key, shader in shaders.items() if HALVES not in shader.code})
    files = {"/shaders.json": json.dumps(items).encode(), "/judge.mjs": (HERE / "judge.mjs").read_bytes()}
    said = told(program, HERE / "tint.html", files, tmp_path_factory.mktemp("profile"), 600)
    if "failed" in said:
        pytest.skip(f"this Chromium has no WebGPU: {said['failed']}")
    return _verdicts(items, said)


def _refused(shaders: Mapping[tuple[str, Layout], Shader], verdicts: Verdicts) -> str:
    """Of the shaders that were judged those that are refused, where the adapter has what they need."""
    subgroups = "subgroups" in verdicts.features
    lines = {
        f"{shader.name}: {error}"
        for (digest, _), shader in shaders.items()
        if subgroups or SUBGROUPS not in shader.standard
        for error in verdicts.errors.get(digest, ())
    }
    return "\n".join(sorted(lines)[:20])


def test_tint_takes_every_shader(shaders: dict[tuple[str, Layout], Shader], verdicts: Verdicts) -> None:
    assert len(verdicts.errors) > 2000
    assert not _refused(shaders, verdicts)


@pytest.mark.parametrize("name", BROKEN)
def test_tint_refuses_what_is_broken(verdicts: Verdicts, name: str) -> None:
    assert verdicts.errors[name]


def test_subgroups_are_among_what_it_has_seen(shaders: dict[tuple[str, Layout], Shader], verdicts: Verdicts) -> None:
    assert sum(SUBGROUPS in shader.standard for shader in shaders.values()) > 200
    if "subgroups" not in verdicts.features:
        pytest.skip(f"{verdicts.adapter} has no subgroups: shaders with them were not validated")


def test_tint_takes_shaders_with_halves(shaders: dict[tuple[str, Layout], Shader], tmp_path: Path) -> None:
    """On Dawn's null device."""
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules" / "webgpu").is_dir():
        pytest.skip("the npm package webgpu is not installed; run: npm install --prefix tests/web")
    halves = {key: shader for key, shader in shaders.items() if HALVES in shader.code}
    assert len(halves) > 500
    items = _items(halves)
    (tmp_path / "shaders.json").write_text(json.dumps(items), encoding="utf-8")
    command = [node, HERE / "dawn_judge.mjs", tmp_path / "shaders.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    verdicts = _verdicts(items, json.loads(done.stdout))
    assert verdicts.features >= {"shader-f16", "subgroups"}
    assert all(verdicts.errors[name] for name in BROKEN)
    assert not _refused(halves, verdicts)
