"""Writes docs/models.md: ``python -m tests.support.models_page [NAME...]``.

What takes time is kept: the errors of the named models, and of those without any, are measured and written to
tests/data/models-measured.json; ``all`` measures every one. The page follows from that, models_facts.py and models_page.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pie_edge.backends.cpu.weights import supports as supports_cpu
from pie_edge.errors import Unsupported
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup, TwoLevel
from pie_edge.weights.formats import BLOCKS
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.widen import choose
from tests.support.models_facts import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
TEXT = Path(__file__).with_suffix(".md")
MEASURED = ROOT / "tests" / "data" / "models-measured.json"
RENDERED = ROOT / "tests" / "data" / "chat" / "rendered"
TEMPLATES = """\
## Chat templates

The file's own template is what renders a conversation, whatever the family ([tokenizers](tokenizers.md)). Those of these
models were compared with `transformers`' rendering, over every shape of conversation; what a template refuses itself, or would
leave a part of out, is refused.
"""
Measured = dict[str, dict[str, Any]]


def measured() -> Measured:
    """By the model's name: ``gguf`` says what its file there is, ``containers``, ``largest`` is the largest logit, and of each
    implementation the largest error, None where it has no kernels for it."""
    found: Measured = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    return found


def page() -> str:
    parts = {"families": _families(), "encodings": _encodings(), "templates": _templates(), "compared": _compared()}
    text = TEXT.read_text(encoding="utf-8")
    for name, table in parts.items():
        text = text.replace(f"{{{name}}}\n" if table else f"{{{name}}}\n\n", table)
    return text


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def _families() -> str:
    rows = ((f"`{name}`", about.models, about.beyond) for name, about in FAMILIES.items())
    return _table(("family", "models of it", "beyond llama's layers"), rows)


def _compared() -> str:
    head = ("model", "GGUF says", "containers", "logits", "reference", "cpu", "Vulkan", "wgpu")
    rows = (
        (
            *(name, found["gguf"] or "–", ", ".join(found["containers"]), f"±{found['largest']:.0f}"),
            *(_error(found[side]) for side in ("reference", "cpu", "vulkan", "wgpu")),
        )
        for name, found in measured().items()
    )
    return _table(head, rows)


def _error(error: float | None) -> str:
    return "–" if error is None else f"{error:.0e}"


def _templates() -> str:
    rows = []
    for name, about in FAMILIES.items():
        found = {template: _cases(template) for template in about.templates if (RENDERED / f"{template}.json").exists()}
        if found:
            rows.append((f"`{name}`", ", ".join(f"{one}: {equal} of {all}" for one, (equal, all) in found.items())))
    if not rows:
        return ""
    return f"{TEMPLATES}\n{_table(('family', 'templates, and how many conversations of all'), rows)}"


def _cases(template: str) -> tuple[int, int]:
    """How many conversations it renders whole, and how many there are."""
    cases = json.loads((RENDERED / f"{template}.json").read_text(encoding="utf-8"))["cases"].values()
    kinds = [json.loads(case)[0] for case in cases]
    return kinds.count("text"), len(kinds)


def _encodings() -> str:
    from pie_edge.backends.shared.weights import supports as supports_gpu

    sides: tuple[Callable[[Encoding], bool], ...] = (
        supports_cpu,
        lambda encoding: supports_gpu(encoding, odd=False),
        lambda encoding: supports_gpu(encoding, odd=True),
    )
    grouped: dict[tuple[str, ...], list[str]] = {}
    for name, native in _natives():
        kept = [choose(native, supported) for supported in sides]
        planes = (_said(native), *("so" if encoding == native else _said(encoding) for encoding in kept))
        grouped.setdefault(planes, []).append(name)
    head = ("file", "exact planes", "cpu", "Vulkan and wgpu, software", "Vulkan and wgpu, card")
    return _table(head, ((", ".join(names), *planes) for planes, names in grouped.items()))


def _natives() -> Iterable[tuple[str, Encoding]]:
    for name in dict.fromkeys(BLOCKS):
        try:
            yield name, native_encoding(name)
        except Unsupported:
            continue
    for scale in (DType.F16, DType.BF16, DType.F32):
        for bits in (4, 8):
            yield f"MLX {bits} bits, {scale}", Affine(bits, 64, scale, None)
    for bits in (4, 8):
        yield f"GPTQ {bits} bits, symmetric", Affine(bits, 128, DType.F16, 1 << bits - 1)
        yield f"GPTQ {bits} bits", Affine(bits, 128, DType.F32, None)
    yield "AWQ 4 bits", Affine(4, 128, DType.F32, None)
    yield "FP8 by blocks", Dense(DType.F32)


def _said(encoding: Encoding) -> str:
    if isinstance(encoding, Dense):
        return str(encoding.dtype)
    scale = "two-level" if isinstance(encoding.scale, TwoLevel) else str(encoding.scale)
    kind = "a table" if isinstance(encoding, Lookup) else "minima" if encoding.zero is None else f"zero {encoding.zero}"
    return f"{encoding.bits} bits by {encoding.group}, {scale}, {kind}"


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    from tests.support.models_measure import measure

    held = measure(sys.argv[1:], measured())
    MEASURED.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    write()
