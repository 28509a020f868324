"""The interfaces of ``pie:inferlet`` as functions of a guest: the whole of what an inferlet can ask for.

A function may raise a ``PieError`` where its WIT result has an error, and nothing else.
"""

from __future__ import annotations

from wasmtime.component import Linker, ResourceType

from pie_edge.host import interfaces
from pie_edge.host.interfaces import Interface
from pie_edge.host.interfaces.chat import CHAT
from pie_edge.host.interfaces.core import CORE
from pie_edge.host.interfaces.grammar import GRAMMARS
from pie_edge.host.interfaces.outside import OUTSIDE
from pie_edge.host.interfaces.pages import PAGES
from pie_edge.host.wasm.imports import Imports

VERSION = "0.1.0"
"""Of the WIT package."""
RESOURCES = {number: ResourceType.host(number) for number in interfaces.RESOURCES}

MAY_WAIT = {
    *(("chat", "turn"), ("chat", "conversation"), ("tools", "equip"), ("tools", "answer"), ("model", "encode")),
    *(("grammar", f"[static]grammar.{name}") for name in ("compile", "of-tools")),
    *(("grammar", f"[method]matcher.{name}") for name in ("accept", "rollback", "state")),
}
"""Functions that may give back a future for their answer; their guest sleeps until it is there."""

_TABLE: dict[str, Interface] = CORE | CHAT | GRAMMARS | PAGES | OUTSIDE


def define(linker: Linker, imports: Imports) -> None:
    with linker.root() as root:
        for name, (resources, functions) in _TABLE.items():
            with root.add_instance(f"pie:inferlet/{name}@{VERSION}") as instance:
                for resource, (number, drop) in resources.items():
                    imports.add_resource(instance, resource, number, drop)
                for function, call in functions.items():
                    imports.add(instance, function, call, blocking=(name, function) in MAY_WAIT)
        with root.add_instance(f"pie:inferlet/events@{VERSION}") as instance:
            imports.add(
                instance,
                "wait",
                lambda guest, submissions, timeout: guest.events.wait(submissions, timeout),
                blocking=True,
            )
            imports.add(instance, "give-up", lambda guest, ticket: guest.events.give_up(ticket), blocking=False)
