"""What the NumPy reference says of the oracle's prompts, computed once for a model file and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Case = dict[str, Any]
Floats = NDArray[Any]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("program/reference.py", "model/*.py", "weights/dequantise.py", "weights/repack.py", "weights/recipes.py")
"""Code that decides what the reference says; an edit makes it compute anew."""


def cases(model: str) -> list[Case]:
    """The oracle's prompts for a built-in model, with its greedy tokens and their five best log probabilities."""
    path = ROOT / "tests" / "data" / "oracle" / f"{model.partition('-')[0]}-greedy.json"
    return list(json.loads(path.read_text(encoding="utf-8")))


def expected(model: str, path: Path) -> list[Floats]:
    """For each prompt f64 [steps, 5]: log probabilities of the oracle's five best ids, on the weights as the file has them."""
    from pie_edge.paths import cache_folder

    judged = cases(model)
    kept = cache_folder() / "parity" / f"{model}-{_digest(path, judged)}.json"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([found.tolist() for found in _compute(path, judged)]), encoding="utf-8")
    return [np.array(rows) for rows in json.loads(kept.read_text(encoding="utf-8"))]


def _compute(path: Path, judged: list[Case]) -> list[Floats]:
    from tests.support.oracle_run import load, log_probabilities

    model, found = load(path), []
    for case in judged:
        prompt, greedy = case["prompt_ids"], case["greedy_ids"]
        rows = log_probabilities(model, prompt + greedy[:-1])[len(prompt) - 1 :]
        found.append(np.take_along_axis(rows, np.array([step["ids"] for step in case["steps"]]), axis=1))
    return found


def _digest(path: Path, judged: list[Case]) -> str:
    digest = hashlib.sha256(json.dumps(judged).encode())
    with path.open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    for source in sorted(file for pattern in SOURCES for file in (ROOT / "pie_edge").glob(pattern)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
