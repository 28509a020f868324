"""The table of docs/models.md: how far each family is from the oracle. ``python -m tests.support.models_page`` writes it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import numpy as np

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.device import LoadedModel
from tests.support import family_oracle, hybrid_configs
from tests.support.family_configs import CONFIGS
from tests.support.family_oracle import CASES, Oracle
from tests.support.oracle_run import in_parts, load, whole_pass

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
HEAD = "| model | GGUF says | containers | logits | reference | cpu |\n|---|---|---|---|---|---|\n"


def table() -> str:
    """A line for each fixture: its containers, its largest logit, and the largest errors in any of the containers."""
    return HEAD + "".join(_line(name) for name in CONFIGS)


def _line(name: str) -> str:
    oracle = family_oracle.read(name)
    containers = [container for of, container in CASES if of == name]
    errors = np.array([_errors(oracle, container) for container in containers]).max(axis=0)
    kinds = {"mistral": "llama", "gemma3_text": "gemma3", **hybrid_configs.KINDS}
    kind = kinds.get(oracle.config["model_type"], oracle.config["model_type"])
    size = np.abs(oracle.logits).max()
    shown = " | ".join(f"{error:.0e}" for error in errors)
    return f"| {name} | {kind if 'gguf' in containers else '–'} | {', '.join(containers)} | ±{size:.0f} | {shown} |\n"


def _errors(oracle: Oracle, container: str) -> tuple[float, float]:
    """Of the reference, in one piece and token by token, and of the cpu backend."""
    with tempfile.TemporaryDirectory() as folder:
        path = oracle.write(Path(folder), container)
        model, count = load(path, oracle.context), len(oracle.tokens)
        found = [in_parts(model, oracle.tokens, ends) for ends in ([count], list(range(1, count + 1)))]
        cpu = asyncio.run(_on_cpu(oracle, path))
    return max(float(np.abs(logits - oracle.logits).max()) for logits in found), float(
        np.abs(cpu - oracle.logits).max()
    )


async def _on_cpu(oracle: Oracle, path: Path) -> np.ndarray:
    backend = await open_cpu(threads=1)
    model = await LoadedModel.from_file(backend, path, oracle.context)
    logits = await model.logits(whole_pass(oracle.tokens))
    await backend.close()
    return logits


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(HEAD)[0]
    PAGE.write_text(head + table(), encoding="utf-8")
