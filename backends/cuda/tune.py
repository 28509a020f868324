"""Where CUDA's variants are tried, and which: ``shared/tune.py`` has how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pie_edge.backend import Stop
from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.api import Driver, dotted
from pie_edge.backends.cuda.compiler import Compiler
from pie_edge.backends.cuda.device import Facts, Gpu
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.cuda.tuning import TILE, TileVariant, Tuning, default_tuning
from pie_edge.backends.shared.remembered import Subject
from pie_edge.backends.shared.trial import FOURS, Bench, always, attentions, of_six_bits, products
from pie_edge.backends.shared.tune import Tuner, tune_and_keep

ANY = 1 << 62
"""A kernel sees all of memory."""


def served(facts: Facts) -> str:
    """By which software."""
    return f"for CUDA {dotted(facts.driver)}, NVRTC {'.'.join(map(str, nvrtc.version()))}"


def subject(facts: Facts) -> Subject:
    return Subject("cuda", f"{facts.name} sm_{facts.architecture}", served(facts), nvrtc.digest())


def bench(session: Session, max_binding: int = ANY) -> Bench:
    facts = session.gpu.facts
    return Bench(
        subject=subject(facts),
        software=facts.software,
        session=session,
        compiler=Compiler,
        max_binding=max_binding,
        default=default_tuning(facts),
        finish=session.timeline.drain,
        search=search,
    )


def search(tuner: Tuner) -> Tuning:
    """The best of each kernel's, starting from the defaults."""
    default: Tuning = tuner.bench.default
    more = (replace(default, blocks=blocks) for blocks in (default.blocks // 2, 2 * default.blocks))
    found = tuner.best("linear, 1 token", always(products(1, FOURS)), default, more)
    others = (replace(found, tile=tile) for tile in tile_variants(default.tile))
    found = tuner.best(f"linear, {TILE} tokens", always(products(TILE, FOURS)), found, others)
    bits = replace(found, odd_bits=not found.odd_bits)
    found = tuner.best("codes of 5 and 6 bits", of_six_bits, found, [bits])
    splits = (replace(found, split=keys) for keys in (found.split // 2, 2 * found.split))
    return tuner.best("attention, a decode", always(attentions(1)), found, splits)


def tile_variants(default: TileVariant) -> Iterator[TileVariant]:
    """All but the default; where there is wgmma, mma as well."""
    for wgmma in dict.fromkeys((default.wgmma, False)):
        for stages in (2, 3, 4):
            if (variant := TileVariant(stages, wgmma)) != default:
                yield variant


def tune_device(device: str, cache_dir: Path, report: Callable[[str], None], stop: Stop) -> None:
    """``pie-edge tune``. Raises BackendUnavailable, BackendError if the best can't be kept, and Stopped."""
    gpu = Gpu(Driver(), device)
    facts = gpu.facts
    session = Session(gpu, facts.memory, nvrtc.Compiler(facts.architecture, cache_dir), stop)
    tune_and_keep(bench(session), cache_dir, report)
