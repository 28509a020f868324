"""Inferlets as Wasm guests: their life, their limits, and everything that they can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pie_edge.host.host import Host, open_sandbox
    from pie_edge.host.instance import Instance, Outcome, State
    from pie_edge.host.limits import Limits

_HOME = {
    "Host": "host",
    "Instance": "instance",
    "Limits": "limits",
    "Outcome": "instance",
    "State": "instance",
    "open_sandbox": "host",
}

__all__ = ["Host", "Instance", "Limits", "Outcome", "State", "open_sandbox"]


def __getattr__(name: str) -> Any:
    # On demand: a wheel is built with ``pie_edge.host.language`` where wasmtime isn't installed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
