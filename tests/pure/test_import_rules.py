"""Who may import whom (``docs/architecture.md``), read from the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pie_edge"

ANYTHING = frozenset({"*"})

# A layer's own modules, and those of our others that it may import. Every layer may import ``errors``.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "program": frozenset(),
    "sampling": frozenset({"program"}),
    "model": frozenset({"program"}),
    "weights": frozenset({"program", "paths"}),
    "backend": frozenset({"program"}),
    "backends": frozenset({"program", "backend", "sampling", "remedies"}),
    "control": frozenset({"program", "backend", "model", "sampling"}),
    "tokenizer": frozenset(),
    "grammar": frozenset(),
    "host": frozenset({"control", "tokenizer", "grammar", "paths", "resources"}),
    "protocol": frozenset(),
    "server": frozenset(
        {"host", "protocol", "grammar", "runtime", "config", "profile", "resources", "paths", "remedies"}
    ),
    "client": frozenset({"protocol"}),
    "config_values": frozenset(),
    "config": frozenset({"config_values", "backend_choice"}),
    "backend_choice": frozenset({"backend"}),
    "paths": frozenset(),
    "remedies": frozenset(),
    "spill": frozenset(),
    "resources": frozenset(),
    "text": frozenset({"tokenizer", "weights"}),
    "profile": frozenset(),
    "runtime": frozenset(
        {"backend", "backend_choice", "config", "control", "grammar", "host", "model", "paths", "program", "resources"}
        | {"sampling", "spill", "text", "weights"}
    ),
    "cli": ANYTHING,
}
# What a browser may not have: these layers run there too.
BROWSER_LAYERS = {"errors", "program", "model", "sampling", "control", "backend"}
NATIVE_MODULES = {
    "numpy",
    "wasmtime",
    "threading",
    "multiprocessing",
    "concurrent",
    "subprocess",
    "ctypes",
    "mmap",
    "os",
}
# The oracles are plain NumPy, and only native code imports them.
ORACLES = {
    f"pie_edge.program.{name}"
    for name in (
        *("reference", "reference_recurrent", "reference_experts"),
        *("node_reference", "node_reference_random", "node_reference_rows"),
    )
}
STANDARD_LIBRARY_ONLY = BROWSER_LAYERS | {"config", "config_values", "backend_choice", "paths", "profile", "resources"}


def sources() -> list[Path]:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "backends").rglob("*.py")]
    return sorted(file for file in files if "__pycache__" not in file.parts)


def layer_of(file: Path) -> str:
    if not file.is_relative_to(PACKAGE):
        return "backends"
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import statement, at the top or inside a function, and the line."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute here, so that they can be searched"
            if node.module == "pie_edge":
                yield from ((f"pie_edge.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield str(node.module), node.lineno


def backend_of(module_or_file: str) -> str:
    """``pie_edge.backends.cpu.kernels`` and ``cpu/kernels.py`` → ``cpu``."""
    return module_or_file.removeprefix("pie_edge.backends.").replace("/", ".").split(".")[0]


def broken_rules(file: Path) -> Iterator[str]:
    layer = layer_of(file)
    allowed = MAY_IMPORT[layer] | {layer, "errors", "__version__"}
    is_oracle = ".".join(file.relative_to(ROOT).with_suffix("").parts) in ORACLES
    for module, line in imports(file):
        place = f"{file.relative_to(ROOT)}:{line}"
        if layer in BROWSER_LAYERS and module in ORACLES and not is_oracle:
            yield f"{place}: {layer} runs in a browser and imports the oracle {module}"
        head, _, rest = module.partition(".")
        if head == "pie_edge":
            other = rest.split(".")[0]
            if other not in allowed and "*" not in allowed:
                yield f"{place}: {layer} imports {module}"
            if layer == other == "backends" and backend_of(module) not in (
                "shared",
                backend_of(str(file.relative_to(ROOT / "backends"))),
            ):
                yield f"{place}: a backend imports another, {module}"
        elif layer in BROWSER_LAYERS and head in NATIVE_MODULES and not is_oracle:
            yield f"{place}: {layer} runs in a browser and imports {module}"
        elif layer in STANDARD_LIBRARY_ONLY and head not in sys.stdlib_module_names and not is_oracle:
            yield f"{place}: {layer} needs the standard library only and imports {module}"


def test_every_layer_of_the_tree_has_its_rule() -> None:
    assert {layer_of(file) for file in sources()} - {"__init__"} <= MAY_IMPORT.keys()


def test_no_module_imports_what_its_layer_may_not() -> None:
    broken = [rule for file in sources() if layer_of(file) != "__init__" for rule in broken_rules(file)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("layer", "statement"),
    [
        ("control/x.py", "import numpy"),
        ("program/x.py", "from pie_edge.model import llama"),
        ("host/x.py", "def f():\n    from pie_edge.weights import hub"),
        ("config.py", "import typer"),
        ("runtime.py", "from pie_edge import cli"),
    ],
)
def test_a_forbidden_import_is_found(
    layer: str, statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path / "pie_edge")
    file = tmp_path / "pie_edge" / layer
    file.parent.mkdir(parents=True)
    file.write_text(statement)
    assert len(list(broken_rules(file))) == 1
