"""Which variants of shaders are tried, one kernel after the other: Vulkan's and wgpu's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pie_edge.backends.shared.trial import FOURS, always, attentions, of_six_bits, products
from pie_edge.backends.shared.tune import Tuner
from pie_edge.backends.shared.tuning import LinearVariant, Tuning


def search(tuner: Tuner) -> Tuning:
    """The best of each kernel's, starting from the defaults."""
    bench = tuner.bench
    default: Tuning = bench.default
    found = default
    if not bench.software:
        wider = (replace(found, interleaved=lanes) for lanes in (16, 64) if lanes != found.interleaved)
        found = tuner.best("rows interleaved", always(products(1, FOURS)), found, wider)
    for tokens, variant in default.linear:
        others = (_with_linear(found, tokens, other) for other in _linear_variants(bench.software, variant))
        found = tuner.best(f"linear, {tokens} tokens", always(products(tokens, FOURS)), found, others)
    other = replace(found, odd_bits=not found.odd_bits)
    found = tuner.best("codes of 5 and 6 bits", of_six_bits, found, [other])
    found = tuner.best("attention, a decode", always(attentions(1)), found, _decodes(found))
    return tuner.best("attention, a prefill", always(attentions(64)), found, _prefills(found))


def _with_linear(tuning: Tuning, tokens: int, variant: LinearVariant) -> Tuning:
    return replace(tuning, linear=tuple((t, variant if t == tokens else v) for t, v in tuning.linear))


def _linear_variants(software: bool, variant: LinearVariant) -> Iterator[LinearVariant]:
    """All but the default. Software shares no columns among invocations: they would only wait for each other."""
    if variant.tile:
        yield from (replace(variant, groups=groups) for groups in (1, 2, 4) if groups != variant.groups)
        return
    for splits in (1,) if software else (1, 2, 4, 8):
        for groups in (8, 12, 16) if software else (1, 2, 4):
            if (splits, groups) != (variant.splits, variant.groups):
                yield LinearVariant(splits, groups)


def _decodes(tuning: Tuning) -> Iterator[Tuning]:
    given = tuning.decode
    for chunk in (given.chunk // 2, 2 * given.chunk):
        yield replace(tuning, decode=replace(given, chunk=chunk))


def _prefills(tuning: Tuning) -> Iterator[Tuning]:
    """Rows by invocation as they are held by default, or by workgroup whatever their width."""
    given = tuning.prefill
    for rows in (given.rows, 2 * given.rows):
        yield replace(tuning, held=0, prefill=replace(given, rows=rows))
