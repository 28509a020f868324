"""Inferlets as Wasm guests: their life, their limits, and everything that they can reach."""

from pie_edge.host.host import Host
from pie_edge.host.instance import Instance, Outcome, State
from pie_edge.host.limits import Limits

__all__ = ["Host", "Instance", "Limits", "Outcome", "State"]
