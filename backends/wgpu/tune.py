"""Where wgpu's variants are tried: ``shared/tune.py`` has how."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from pie_edge.backend import Stop
from pie_edge.backends.shared.remembered import Subject
from pie_edge.backends.shared.shader_search import search
from pie_edge.backends.shared.trial import Bench
from pie_edge.backends.shared.tune import tune_and_keep
from pie_edge.backends.wgpu.api import wgpu
from pie_edge.backends.wgpu.compiler import Compiler
from pie_edge.backends.wgpu.device import Facts, open_device
from pie_edge.backends.wgpu.session import Session
from pie_edge.backends.wgpu.templates import FOLDER
from pie_edge.backends.wgpu.tuning import default_tuning


def kernels_digest() -> str:
    """Of all sources."""
    found = hashlib.sha256()
    for path in sorted(FOLDER.rglob("*.wgsl")):
        found.update(f"{path.relative_to(FOLDER)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def subject(facts: Facts) -> Subject:
    """The package compiles for the driver, and so is part of it."""
    return Subject("wgpu", facts.name, f"{facts.driver}, wgpu {wgpu.__version__}", kernels_digest())


def bench(session: Session, max_binding: int) -> Bench:
    facts = session.facts
    return Bench(
        subject=subject(facts),
        software=facts.software,
        session=session,
        compiler=Compiler,
        max_binding=max_binding,
        default=default_tuning(facts),
        search=search,
        finish=session.timeline.finish,
    )


def tune_device(device: str, cache_dir: Path, report: Callable[[str], None], stop: Stop) -> None:
    """``pie-edge tune``. Raises BackendUnavailable, BackendError if the best can't be kept, and Stopped."""
    handle, facts = open_device(device)
    session = Session(handle, facts, facts.memory, stop)
    tune_and_keep(bench(session, facts.max_binding), cache_dir, report)
