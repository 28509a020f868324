"""A checkpoint's fingerprint: the same for a copy, another one for any other model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.fingerprint import fingerprint

TENSORS = {
    "embed": np.arange(4096, dtype=np.float32).reshape(64, 64),
    "norm": np.ones(64, np.float32),
}


def of(folder: Path, tensors: dict[str, np.ndarray], kind: str = "llama") -> str:  # type: ignore[type-arg]
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    with open_checkpoint(folder) as checkpoint:
        return fingerprint(checkpoint)


def test_copies_agree_and_every_difference_shows(tmp_path: Path) -> None:
    first = of(tmp_path / "first", TENSORS)
    assert of(tmp_path / "copy", dict(reversed(TENSORS.items()))) == first
    changed_end = TENSORS["embed"].copy()
    changed_end[-1, -1] += 1
    others = {
        "another architecture": of(tmp_path / "kind", TENSORS, "gemma3_text"),
        "another value at a tensor's end": of(tmp_path / "value", TENSORS | {"embed": changed_end}),
        "another shape": of(tmp_path / "shape", TENSORS | {"embed": TENSORS["embed"].reshape(128, 32)}),
        "another type": of(tmp_path / "type", TENSORS | {"norm": np.ones(64, np.float16)}),
        "another name": of(tmp_path / "name", {"embed": TENSORS["embed"], "gain": TENSORS["norm"]}),
    }
    assert first not in others.values()
    assert len(set(others.values())) == len(others)
