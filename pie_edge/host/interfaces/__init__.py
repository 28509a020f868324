"""The interfaces of ``pie:inferlet`` as tables of functions: interface → (its resources, its functions)."""

from __future__ import annotations

from pie_edge.host.wasm.imports import HostFunction

Interface = tuple[dict[str, tuple[int, HostFunction]], dict[str, HostFunction]]
"""Resources by name, each with its number and what drops one; functions by name, which take the guest first."""

RESOURCES = range(1, 12)
WORKING_SET, DECODER, QUEUE, SUBSCRIPTION, RESPONSE, CHILD, CHANNEL, ANSWER, FILE, GRAMMAR, MATCHER = RESOURCES

LONGEST_READ = 256 * 1024
"""Bytes in one call: each takes 32 on its way."""
