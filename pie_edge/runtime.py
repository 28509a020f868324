"""The whole put together: a checkpoint, a backend, the engine, a tokenizer and the Wasm host, as one object to run inferlets with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pie_edge.backend_choice import Choice, choose, open_backend
from pie_edge.config import Settings
from pie_edge.control.device import DeviceSettings
from pie_edge.control.engine import Engine, ModelFacts
from pie_edge.host import Host, Limits
from pie_edge.model import registry
from pie_edge.model.spec import Facts
from pie_edge.paths import cache_folder
from pie_edge.tokenizer import Tokenizer
from pie_edge.weights import hub
from pie_edge.weights.checkpoint import Checkpoint, open_checkpoint
from pie_edge.weights.source import file_weight

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What an inferlet gave: its result, tokens it used, and seconds (``tokens_per_second`` counts read-outs after the first)."""

    result: Any
    usage: dict[str, int]
    timings: dict[str, float]
