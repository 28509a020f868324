"""``scripts/gpu-check``: which commands it runs on a machine with a card, seen through stand-ins for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script")


def ran(folder: Path, *words: str, cuda_says: str = "the same", models: Path | None = None) -> tuple[int, list[str]]:
    """Its exit status, and the commands it ran."""
    told = folder / "told"
    for name in ("scripts/debian-packages", "scripts/bootstrap", ".venv/bin/python", ".venv/bin/pie-edge"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        answer = f'case "$*" in *"--backend cuda"*) echo "{cuda_says}";; "run "*) echo "the same";; esac'
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >> {told}\n{answer if path.name == "pie-edge" else ""}\n')
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "gpu-check", folder / "scripts")
    environment = os.environ | {"PIE_EDGE_TEST_MODELS": str(models or ""), "TMPDIR": str(folder)}
    script = [folder / "scripts" / "gpu-check", *words]
    done = subprocess.run(script, env=environment, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode, told.read_text().splitlines() if told.exists() else []


def asked(model: object, backend: str) -> str:
    words = "-q -- --prompt What is gravity? --max-tokens 8"
    return f"pie-edge run inferlets/quickstart/main.py --model {model} --backend {backend} {words}"


def test_cuda_is_tested_tuned_compared_over_a_checkpoint_of_its_own_and_measured(tmp_path: Path) -> None:
    status, commands = ran(tmp_path, "cuda")
    seeded = tmp_path / "pie-edge-seeded.gguf"
    assert status == 0
    assert commands[2:] == [
        "pie-edge doctor",
        "python - cuda False",
        "python -m tests.backend.cuda_card",
        "python -m pytest tests/backend -k cuda",
        "pie-edge tune --backend cuda",
        f"python -m benchmarks.seeded {seeded}",
        asked(seeded, "cpu"),
        asked(seeded, "cuda"),
        f"python -m benchmarks.cuda --model {seeded}",
    ]


def test_models_that_are_here_are_compared_instead(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "smollm2-135m.gguf").touch()
    _, commands = ran(tmp_path / "here", "cuda", models=models)
    assert [asked(models / "smollm2-135m.gguf", backend) for backend in ("cpu", "cuda")] == commands[7:9]
    assert commands[9:] == ["python -m benchmarks.cuda"]


@pytest.mark.parametrize("backend", ["metal", "vulkan", "wgpu"])
def test_the_larger_model_is_compared_where_it_lies_or_fetched(tmp_path: Path, backend: str) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for place in ("gemma3-270m", models / "gemma3-270m.gguf"):
        _, commands = ran(tmp_path / Path(place).name, backend, models=models)
        assert [one for one in commands if "quickstart" in one][:2] == [asked(place, one) for one in ("cpu", backend)]
        (models / "gemma3-270m.gguf").touch()


def test_another_answer_than_the_processors_ends_it(tmp_path: Path) -> None:
    status, commands = ran(tmp_path, "cuda", cuda_says="another")
    assert status == 1
    assert "python -m benchmarks.cuda" not in commands


@pytest.mark.parametrize("software", [False, True])
def test_a_mac_is_tuned_before_it_is_measured_and_mlx_on_a_processor_is_not(tmp_path: Path, software: bool) -> None:
    status, commands = ran(tmp_path, "metal", *["--software"] * software)
    assert status == 0
    tested = commands.index("python -m pytest tests/backend -k metal")
    assert (commands[tested + 1] == "pie-edge tune --backend metal") is not software
    assert commands[-1] == "python -m benchmarks.metal"


def test_a_backend_without_gpu_tests_is_refused(tmp_path: Path) -> None:
    assert ran(tmp_path, "abacus") == (2, [])
