"""The committed kernels are what their sources compile to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pie_edge.backends.cpu import build


def test_the_committed_binary_is_a_build_of_the_sources(tmp_path: Path) -> None:
    found = build.compiler_version()
    if found != build.COMPILER:
        pytest.skip(f"building the kernels takes ziglang {build.COMPILER}; found {found}")
    target = tmp_path / "kernels.wasm"
    build.build(target)
    assert target.read_bytes() == build.BINARY.read_bytes(), (
        "run python -m pie_edge.backends.cpu.build and commit the result"
    )


def test_a_source_that_does_not_compile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if build.compiler_version() != build.COMPILER:
        pytest.skip(f"building the kernels takes ziglang {build.COMPILER}")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "bad.c").write_text("int f(void) { return x; }\n", encoding="utf-8")
    monkeypatch.setattr(build, "HERE", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        build.build(tmp_path / "kernels.wasm")
