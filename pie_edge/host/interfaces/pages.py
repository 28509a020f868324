"""Level 1: KV pages, embeds and queues, by the model's traits; and what models there are."""

from __future__ import annotations

from typing import Any

from pie_edge.errors import ModelNotFound, Unsupported
from pie_edge.host.guest import Guest
from pie_edge.host.interfaces import QUEUE, Interface


def _without(guest: Guest, trait: str) -> Unsupported:
    had = ", ".join(guest.model.traits)
    return Unsupported(
        f"{guest.model.facts.name} has no trait {trait}; its traits are {had}. Ask available_traits first"
    )


def _forward_with_adapter(guest: Guest, queue: int, adapter: str, *call: Any) -> None:
    if not guest.model.abilities.adapters:
        raise _without(guest, "adapter")
    context, inputs, writes, outputs, mask = call
    guest.level1.forward(queue, context, inputs, writes, outputs, mask, adapter=adapter)


def _no_image(guest: Guest, *arguments: Any) -> None:
    raise _without(guest, "input-image")


def _with_traits(guest: Guest, traits: list[str]) -> list[str]:
    return [guest.model.facts.name] if set(traits) <= set(guest.model.traits) else []


def _describe(guest: Guest, name: str) -> tuple[Any, ...]:
    facts = guest.model.facts
    if name != facts.name:
        raise ModelNotFound(f"{guest.name} asks for the model {name!r}; there is {facts.name}")
    return facts.name, list(guest.model.traits), facts.description, facts.version, facts.licence, guest.model.template


PAGES: dict[str, Interface] = {
    "models": (
        {},
        {
            "all": lambda guest: [guest.model.facts.name],
            "with-traits": _with_traits,
            "get": _describe,
        },
    ),
    "queues": (
        {"queue": (QUEUE, lambda guest, queue: guest.level1.drop_queue(queue))},
        {
            "[static]queue.create": lambda guest: guest.level1.create_queue(),
            "[method]queue.id": lambda guest, queue: queue,
            "[method]queue.set-priority": lambda guest, queue, priority: guest.level1.set_priority(queue, priority),
        },
    ),
    "allocate": (
        {},
        {
            "alloc-kv-pages": lambda guest, count: guest.level1.handles.allocate_pages(count),
            "free-kv-pages": lambda guest, pages: guest.level1.handles.free_pages(pages),
            "copy-kv": lambda guest, queue, source, target: guest.level1.copy(queue, source, target),
            "export-kv-pages": lambda guest, pages, name: guest.level1.export(pages, name),
            "import-kv-pages": lambda guest, name: guest.level1.handles.import_pages(name),
            "withdraw-kv-pages": lambda guest, name: guest.level1.handles.withdraw(name),
            "alloc-embeds": lambda guest, count: guest.level1.handles.allocate_embeds(count),
            "free-embeds": lambda guest, embeds: guest.level1.handles.free_embeds(embeds),
        },
    ),
    "forward-pages": (
        {},
        {
            "forward": lambda guest, *call: guest.level1.forward(*call),
            "forward-with-adapter": _forward_with_adapter,
            "mask-kv-page": lambda guest, queue, page, hidden: guest.level1.mask_page(queue, page, hidden),
        },
    ),
    "input-text": (
        {},
        {
            "embed-text": lambda guest, embeds, tokens, positions: guest.level1.handles.embed_text(
                embeds, tokens, positions
            )
        },
    ),
    "input-image": ({}, {"embed-image": _no_image, "image-embeds": _no_image}),
    "output-text": ({}, {}),
    "introspective": (
        {},
        {
            "attention-layers": lambda guest: guest.model.abilities.observable_layers,
            "forward-observed": lambda guest, queue, layers, *call: guest.level1.forward(queue, *call, layers),
        },
    ),
}
