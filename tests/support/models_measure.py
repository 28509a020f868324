"""How far each tiny model is from ``transformers``, on the reference and on the backends."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pie_edge.errors import Unsupported
from pie_edge.weights.checkpoint import open_checkpoint
from tests.backend import openers
from tests.backend.device import LoadedModel
from tests.backend.openers import Opening
from tests.support import family_oracle
from tests.support.family_configs import CONFIGS
from tests.support.family_oracle import CASES, Oracle
from tests.support.oracle_run import in_parts, load, whole_pass


def measure(names: Sequence[str], held: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those named, or all, and those that ``held`` lacks; in the order of the configurations."""
    wanted = {name for name in CONFIGS if name in names or "all" in names or name not in held}
    return {name: _measured(name) if name in wanted else held[name] for name in CONFIGS}


def _measured(name: str) -> dict[str, Any]:
    oracle = family_oracle.read(name)
    containers = [container for of, container in CASES if of == name]
    with tempfile.TemporaryDirectory() as folder:
        paths = {container: oracle.write(Path(folder), container) for container in containers}
        sides = [_errors(oracle, path) for path in paths.values()]
        gguf = open_checkpoint(paths["gguf"]).architecture if "gguf" in paths else None
    worst = {side: _worst([found[side] for found in sides]) for side in sides[0]}
    print(name, worst)
    return {"gguf": gguf, "containers": containers, "largest": float(np.abs(oracle.logits).max())} | worst


def _worst(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return float(f"{max(known):.2g}") if len(known) == len(errors) else None


def _errors(oracle: Oracle, path: Path) -> dict[str, float | None]:
    """Of the reference, in one piece and token by token, and of the backends."""
    model, count = load(path, oracle.context), len(oracle.tokens)
    found = [in_parts(model, oracle.tokens, ends) for ends in ([count], list(range(1, count + 1)))]
    return {
        "reference": max(float(np.abs(logits - oracle.logits).max()) for logits in found),
        "cpu": asyncio.run(_on(partial(openers.cpu, threads=1), oracle, path)),
        "vulkan": asyncio.run(_on(partial(openers.vulkan, exact=True), oracle, path)),
        "wgpu": asyncio.run(_on(partial(openers.wgpu, exact=True), oracle, path)),
    }


async def _on(opened: Opening, oracle: Oracle, path: Path) -> float | None:
    """None where the backend lacks a kernel."""
    backend = await asyncio.to_thread(opened)
    try:
        model = await LoadedModel.from_file(backend, path, oracle.context)
        logits = await model.logits(whole_pass(oracle.tokens))
    except Unsupported:
        return None
    finally:
        await backend.close()
    return float(np.abs(logits - oracle.logits).max())
