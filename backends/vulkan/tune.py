"""Where Vulkan's variants are tried: ``shared/tune.py`` has how."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from pie_edge.backend import Stop
from pie_edge.backends.shared.remembered import Subject
from pie_edge.backends.shared.shader_search import search
from pie_edge.backends.shared.trial import Bench
from pie_edge.backends.shared.tune import tune_and_keep
from pie_edge.backends.vulkan.compiler import Compiler
from pie_edge.backends.vulkan.device import Facts, open_gpu
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.shaders import FOLDER
from pie_edge.backends.vulkan.tuning import default_tuning


def kernels_digest() -> str:
    """Of all compiled shaders: their build writes it down."""
    try:
        return hashlib.sha256((FOLDER / "hashes.json").read_bytes()).hexdigest()
    except OSError:
        return ""


def subject(facts: Facts) -> Subject:
    return Subject("vulkan", facts.name, facts.cache_key, kernels_digest())


def bench(session: Session) -> Bench:
    facts = session.gpu.facts
    return Bench(
        subject=subject(facts),
        software=facts.software,
        session=session,
        compiler=Compiler,
        max_binding=facts.max_binding,
        default=default_tuning(facts),
        finish=session.timeline.drain,
        search=search,
    )


def tune_device(device: str, cache_dir: Path, report: Callable[[str], None], stop: Stop) -> None:
    """``pie-edge tune``. Raises BackendUnavailable, BackendError if the best can't be kept, and Stopped."""
    gpu = open_gpu(device)
    session = Session(gpu, gpu.facts.memory, cache_dir, stop)
    tune_and_keep(bench(session), cache_dir, report)
