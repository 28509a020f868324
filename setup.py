"""What pyproject.toml can't say: packages that lie beside ``pie_edge/``, and the language component built into wheels."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MOVED = {"pie_edge.backends": "backends", "pie_edge.inferlets": "inferlets", "pie_edge.shaders": "shaders"}
"""Folders of the checkout's root that are installed inside the package."""


def packages() -> list[str]:
    backends = find_packages(str(ROOT), include=["backends", "backends.*"])
    ours = find_packages(str(ROOT), include=["pie_edge", "pie_edge.*"])
    return [*ours, *(f"pie_edge.{name}" for name in backends), "pie_edge.inferlets", "pie_edge.shaders"]


class BuildWithComponent(build_py):
    """Copies the packages, then builds the Python language component into the copy.

    An editable installation leaves that to the first use: it takes a quarter of a minute.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            sys.path.insert(0, str(ROOT))
            from pie_edge.host.language import build_into

            build_into(Path(self.build_lib) / "pie_edge")


setup(
    packages=packages(),
    package_dir={"pie_edge": "pie_edge", **MOVED},
    package_data={
        "pie_edge": ["py.typed"],
        "pie_edge.server.page": ["*.html", "*.css", "*.js"],
        "pie_edge.backends": ["**/*.c", "**/*.h", "**/*.cu", "**/*.cuh", "**/*.metal", "**/*.json", "**/*.wasm"],
        "pie_edge.shaders": ["spirv/*.spv", "wgsl/**/*.wgsl"],
        "pie_edge.inferlets": ["wit/*.wit", "sdk/python/**/*.py", "*/*.py"],
    },
    cmdclass={"build_py": BuildWithComponent},
)
