"""Compile ``kernels/*.c`` to ``kernels.wasm``: ``python -m pie_edge.backends.cpu.build``.

The result is committed, so that users need no compiler. It wants the PyPI package ``ziglang`` of the version below;
that clang builds the same bytes on every machine, and a test compares them where it is installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

COMPILER = "0.17.1"
HERE = Path(__file__).parent
BINARY = HERE / "kernels.wasm"

_FEATURES = ("simd128", "relaxed_simd", "atomics", "bulk_memory", "nontrapping_fptoint", "sign_ext")
_FLAGS = (
    "-target",
    "wasm32-freestanding",
    "-mcpu=generic+" + "+".join(_FEATURES),
    "-std=c17",
    "-O3",
    # Loops are written as they should be (kernels/base.h), and sums must not depend on the compiler's mood.
    "-fno-unroll-loops",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-nostdlib",
    "-Wl,--no-entry",
    "-Wl,--import-memory",
    "-Wl,--shared-memory",
    "-Wl,--max-memory=4294901760",
    "-Wl,--export=__stack_pointer",
    "-Wl,--export=__heap_base",
    "-Wl,--strip-all",
)


def compiler_version() -> str | None:
    """Of the ``ziglang`` package that is installed, if one is."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    done = subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build(target: Path) -> None:
    """Compile to ``target``. Raises CalledProcessError with the compiler's messages on stderr."""
    # Names, not paths: the binary must not know where it was built.
    sources = sorted(path.name for path in (HERE / "kernels").glob("*.c"))
    command = [sys.executable, "-m", "ziglang", "cc", *_FLAGS, *sources, "-o", str(target)]
    subprocess.run(command, cwd=HERE / "kernels", check=True)
    target.chmod(0o644)  # the linker makes it executable, which it isn't


if __name__ == "__main__":
    found = compiler_version()
    if found != COMPILER:
        sys.exit(f"building the kernels takes ziglang {COMPILER}, found {found}: pip install ziglang=={COMPILER}")
    build(BINARY)
