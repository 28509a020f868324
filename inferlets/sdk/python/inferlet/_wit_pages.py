"""Level 1 of the WIT world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wit_world.imports import (
    allocate,
    forward_pages,
    input_image,
    input_text,
    introspective,
    model,
    models,
    queues,
)

from inferlet._host import Description, Slice
from inferlet._wit_errors import checked

_TRAITS = {one.name.lower().replace("_", "-"): one for one in models.Trait}


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    """As ``checked``, of a function that takes lists: the bindings accept no other sequence."""
    call = checked(function)
    return lambda *arguments: call(*(list(one) if isinstance(one, tuple) else one for one in arguments))


class _Queue:
    def __init__(self) -> None:
        self._handle = checked(queues.Queue.create)()
        self.id = self._handle.id()
        self.set_priority = checked(self._handle.set_priority)


def _slice(one: Slice) -> allocate.KvSlice:
    pages, first, last = one
    return allocate.KvSlice(list(pages), first, last)


class Pages:
    list_models = staticmethod(models.all)
    create_queue = _Queue
    alloc_kv_pages = staticmethod(checked(allocate.alloc_kv_pages))
    free_kv_pages = staticmethod(_listed(allocate.free_kv_pages))
    export_kv_pages = staticmethod(_listed(allocate.export_kv_pages))
    import_kv_pages = staticmethod(checked(allocate.import_kv_pages))
    withdraw_kv_pages = staticmethod(checked(allocate.withdraw_kv_pages))
    alloc_embeds = staticmethod(checked(allocate.alloc_embeds))
    free_embeds = staticmethod(_listed(allocate.free_embeds))
    mask_kv_page = staticmethod(_listed(forward_pages.mask_kv_page))
    embed_text = staticmethod(_listed(input_text.embed_text))
    embed_image = staticmethod(_listed(input_image.embed_image))
    image_embeds = staticmethod(checked(input_image.image_embeds))
    attention_layers = staticmethod(introspective.attention_layers)

    def models_with_traits(self, traits: Sequence[str]) -> list[str]:
        return models.with_traits([_TRAITS[trait] for trait in traits])

    def describe_model(self, name: str) -> Description:
        found = checked(models.get)(name)
        named = {trait: name for name, trait in _TRAITS.items()}
        return Description(
            found.name,
            tuple(named[trait] for trait in found.traits),
            found.description,
            found.version,
            found.licence,
            found.prompt_template,
        )

    def vocabulary(self, first: int, count: int) -> tuple[list[int], bytes]:
        found = model.vocabulary(first, count)
        return found.lengths, bytes(found.bytes)

    def copy_kv(self, queue: int, source: Slice, target: Slice) -> None:
        checked(allocate.copy_kv)(queue, _slice(source), _slice(target))

    def forward_pages(
        self,
        queue: int,
        context: Sequence[Slice],
        inputs: Sequence[int],
        writes: Sequence[Slice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
    ) -> None:
        checked(forward_pages.forward)(queue, *_call(context, inputs, writes, outputs, mask))

    def forward_with_adapter(
        self,
        queue: int,
        adapter: str,
        context: Sequence[Slice],
        inputs: Sequence[int],
        writes: Sequence[Slice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
    ) -> None:
        call = _call(context, inputs, writes, outputs, mask)
        checked(forward_pages.forward_with_adapter)(queue, adapter, *call)

    def forward_observed(
        self,
        queue: int,
        layers: Sequence[int],
        context: Sequence[Slice],
        inputs: Sequence[int],
        writes: Sequence[Slice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
    ) -> None:
        call = _call(context, inputs, writes, outputs, mask)
        checked(introspective.forward_observed)(queue, list(layers), *call)


def _call(
    context: Sequence[Slice],
    inputs: Sequence[int],
    writes: Sequence[Slice],
    outputs: Sequence[int],
    mask: Sequence[bool] | None,
) -> tuple[Any, ...]:
    parts = [[_slice(one) for one in slices] for slices in (context, writes)]
    return parts[0], list(inputs), parts[1], list(outputs), None if mask is None else list(mask)
