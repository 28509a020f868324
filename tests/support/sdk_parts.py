"""Hosts for parts of the SDK that need no engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "inferlets/sdk/python"))

from inferlet import _host, model


@contextmanager
def with_host(**functions: Any) -> Iterator[None]:
    """A host that has these functions and no others."""
    fake: Any = SimpleNamespace(**functions)
    before = _host._installed
    _host.install(fake)
    model.facts.cache_clear()
    try:
        yield
    finally:
        _host._installed = before
        model.facts.cache_clear()


@contextmanager
def with_vocabulary(size: int) -> Iterator[None]:
    """A model of so many tokens; a token's text is its number."""
    facts = _host.Facts("fake", "none", "", "", size, 1000, 16, None, None, False, 1000)
    with with_host(facts=lambda: facts, decode=lambda tokens, special, continued: ",".join(map(str, tokens))):
        yield
