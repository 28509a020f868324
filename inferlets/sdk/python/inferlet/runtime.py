"""The instance this program runs as."""

from __future__ import annotations

import random
from typing import Any, Literal

from inferlet import _check, _program
from inferlet._host import Used, host
from inferlet.children import Child, launch

__all__ = ["Child", "Level", "arguments", "instance_id", "launch", "log", "reseed", "seed", "usage", "version"]

Level = Literal["debug", "info", "warning", "error"]


def version() -> str:
    """Of pie-edge."""
    return host().version()


def instance_id() -> str:
    """Unique among the instances of this host."""
    return host().instance_id()


def seed() -> int:
    """What every random number of this instance derives from, those of ``random`` included."""
    return host().seed()


def arguments() -> dict[str, Any]:
    """The input that ``main`` gets."""
    return _program.arguments


def log(message: object, level: Level = "info") -> None:
    """A line for the operator; the client doesn't see it."""
    host().log(level, _check.text(str(message), "runtime.log"))


def usage() -> Used:
    """Tokens that this program's passes have taken so far: ``forwarded`` (computed), ``cached`` (a prefix shared with others had
    them), ``recomputed`` (such a prefix had been evicted)."""
    return host().usage()


def reseed() -> None:
    """``random`` was initialised when the component was built; from here on it is this instance's own."""
    random.seed(host().seed())
