"""Level 1: the programming interface of the Pie paper (SOSP 2025), function by function.

A program allocates KV pages and embeds, puts tokens into embeds, forwards them over pages, and reads what comes next from
output embeds. Calls return at once, and those of one queue run in order; only ``get_next_dist`` and ``synchronize`` wait. What
goes wrong later is raised by the next call on the queue, or by the await of what was to come of it.

    kv, out = alloc_kvpage(tokens=100), alloc_emb(1)
    prompt = tokenize("Hello,")
    tokens = alloc_emb(len(prompt))
    embed_txt(tokens, prompt, range(len(prompt)))
    forward(kv[:0], tokens, kv[: len(prompt)], out)
    best = (await get_next_dist(out)).max_index()

A model's functions come in traits: ``available_traits`` says which it has; those of others raise Unsupported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferlet import _loop, model, queues
from inferlet._host import AttentionMass, Candidates, Masses, NextDistribution, Slice, host
from inferlet.errors import InvalidHandle, UsageError
from inferlet.model import attention_layers
from inferlet.model import decode as detokenize
from inferlet.model import encode as tokenize
from inferlet.model import vocabulary as get_vocabs
from inferlet.pages import Distribution, Embeds, KvPages
from inferlet.queues import Queue, create_queue, or_default, set_priority, synchronize

__all__ = [
    "Distribution",
    "Embeds",
    "KvPages",
    "Queue",
    "alloc_emb",
    "alloc_kvpage",
    "attention_layers",
    "attention_mass",
    "available_traits",
    "copy_kvpage",
    "create_queue",
    "dealloc_emb",
    "dealloc_kvpage",
    "detokenize",
    "embed_img",
    "embed_txt",
    "export_kvpage",
    "forward",
    "forward_observed",
    "forward_with_adapter",
    "forward_with_mask",
    "get_next_dist",
    "get_vocabs",
    "import_kvpage",
    "mask_kvpage",
    "num_embs_needed",
    "set_priority",
    "synchronize",
    "tokenize",
    "withdraw_kvpage",
]


def available_traits() -> frozenset[str]:
    """``allocate``, ``forward``, ``input-text``, …"""
    return frozenset(model.get(model.name()).traits)


# Allocate.


def alloc_kvpage(count: int | None = None, *, tokens: int | None = None) -> KvPages:
    """``count`` KV pages, or as many as ``tokens`` tokens need. A page takes memory when it is first written."""
    if (count is None) == (tokens is None):
        raise UsageError("alloc_kvpage takes a number of pages, or tokens=, and not both")
    if count is None:
        count = -(-(tokens or 0) // model.page_size())
    return KvPages.whole(host().alloc_kv_pages(_unsigned(count, "pages")))


def dealloc_kvpage(kv: KvPages) -> None:
    """Gives whole pages back; passes that name them go on. Raises InvalidHandle, having freed none, for one that isn't held."""
    queues.flush()
    host().free_kv_pages(kv.pages)


def alloc_emb(count: int = 1) -> Embeds:
    return Embeds(host().alloc_embeds(_unsigned(count, "embeds")))


def dealloc_emb(embeds: Embeds) -> None:
    queues.flush()
    host().free_embeds(embeds.ids)


def copy_kvpage(source: KvPages, target: KvPages, *, queue: Queue | None = None) -> None:
    """Copies keys and values token by token, after what the queue has before it. The two are equally long."""
    if len(source) != len(target):
        raise InvalidHandle(f"{len(source)} tokens were to be copied to {len(target)} places; the two must be equal")
    queues.flush()
    done = 0
    for pages, first, last in source.parts:
        for other in target[done : done + last - first].parts:
            length = other[2] - other[1]
            host().copy_kv(or_default(queue).id, (pages, first, first + length), other)
            first += length
            done += length


def export_kvpage(kv: KvPages, name: str) -> None:
    """Shares whole pages, as they are now, with every instance of this host that knows the name. They outlive this one.

    Raises InvalidHandle if the name is taken, or a pass still names one of the pages: synchronize first.
    """
    queues.flush()
    host().export_kv_pages(kv.pages, name)


def import_kvpage(name: str) -> KvPages:
    """Pages of one's own with the exported content; who writes one gets a copy. Raises InvalidHandle for an unknown name."""
    return KvPages.whole(host().import_kv_pages(name))


def withdraw_kvpage(name: str) -> None:
    """Ends an export. Those who imported it keep their pages."""
    host().withdraw_kv_pages(name)


# Forward.


def forward(
    context: KvPages,
    inputs: Embeds,
    writes: KvPages,
    outputs: Embeds | None = None,
    *,
    mask: Sequence[Sequence[bool]] | None = None,
    queue: Queue | None = None,
) -> None:
    """Forwards the tokens in ``inputs``, which see ``context`` and of one another those before; their keys and values go to
    ``writes``, one place each, and the last of them fill ``outputs``. A ``mask`` has a row for each input, which says of each
    token of ``context``, then of ``writes``, whether the input may see it."""
    queues.flush()
    host().forward_pages(or_default(queue).id, *_call(context, inputs, writes, outputs, mask))


def forward_with_mask(
    context: KvPages,
    inputs: Embeds,
    writes: KvPages,
    outputs: Embeds | None,
    mask: Sequence[Sequence[bool]],
    *,
    queue: Queue | None = None,
) -> None:
    """``forward`` with its mask."""
    forward(context, inputs, writes, outputs, mask=mask, queue=queue)


def forward_with_adapter(
    adapter: str,
    context: KvPages,
    inputs: Embeds,
    writes: KvPages,
    outputs: Embeds | None = None,
    *,
    mask: Sequence[Sequence[bool]] | None = None,
    queue: Queue | None = None,
) -> None:
    """As ``forward``, through an adapter. Raises Unsupported where the model has no trait ``adapter``."""
    queues.flush()
    host().forward_with_adapter(or_default(queue).id, adapter, *_call(context, inputs, writes, outputs, mask))


def forward_observed(
    layers: Iterable[int],
    context: KvPages,
    inputs: Embeds,
    writes: KvPages,
    outputs: Embeds,
    *,
    mask: Sequence[Sequence[bool]] | None = None,
    queue: Queue | None = None,
) -> None:
    """As ``forward``, and ``attention_mass`` of each output says what its token attended to in these layers, of which there are
    ``attention_layers()``. Raises Unsupported where the model has no trait ``introspective``."""
    queues.flush()
    chosen = [_unsigned(layer, "as a layer") for layer in layers]
    host().forward_observed(or_default(queue).id, chosen, *_call(context, inputs, writes, outputs, mask))


def mask_kvpage(kv: KvPages, hidden: Sequence[bool], *, queue: Queue | None = None) -> None:
    """Hides (True) or shows each token of whole pages from later passes of the queue. Others who share the pages' content see
    it as before."""
    pages, size = kv.pages, model.page_size()
    if len(hidden) != len(kv):
        raise InvalidHandle(f"{len(hidden)} values were given for {len(kv)} tokens to hide or show; give one for each")
    queues.flush()
    for index, page in enumerate(pages):
        own = [bool(one) for one in hidden[index * size : (index + 1) * size]]
        host().mask_kv_page(or_default(queue).id, page, own)


def _call(
    context: KvPages,
    inputs: Embeds,
    writes: KvPages,
    outputs: Embeds | None,
    mask: Sequence[Sequence[bool]] | None,
) -> tuple[Sequence[Slice], Sequence[int], Sequence[Slice], Sequence[int], list[bool] | None]:
    flat = None
    if mask is not None:
        width = len(context) + len(writes)
        if len(mask) != len(inputs) or any(len(row) != width for row in mask):
            shape = sorted({len(row) for row in mask})
            raise InvalidHandle(
                f"a mask of {len(mask)} rows of {shape} was given; {len(inputs)} inputs that see {width} tokens need "
                f"{len(inputs)} rows of {width}"
            )
        flat = [bool(one) for row in mask for one in row]
    return context.parts, inputs.ids, writes.parts, () if outputs is None else outputs.ids, flat


# InputText, InputImage, OutputText, Introspective.


def embed_txt(embeds: Embeds, tokens: Sequence[int], positions: Iterable[int]) -> None:
    """Puts a token and its position into each embed. It costs nothing by itself."""
    queues.flush()
    chosen = [_unsigned(token, "as a token") for token in tokens]
    host().embed_text(embeds.ids, chosen, [_unsigned(one, "as a position") for one in positions])


def embed_img(embeds: Embeds, image: bytes, position: int) -> None:
    """Puts an encoded image into embeds, from ``position`` on. Raises Unsupported where the model lacks the trait."""
    queues.flush()
    host().embed_image(embeds.ids, image, _unsigned(position, "as a position"))


def num_embs_needed(width: int, height: int) -> int:
    """How many embeds an image of this size, in pixels, takes. Raises Unsupported as ``embed_img``."""
    return host().image_embeds(_unsigned(width, "pixels"), _unsigned(height, "pixels"))


async def get_next_dist(embed: Embeds) -> Distribution:
    """What comes next after the token whose pass filled this one embed. Raises what the pass failed with."""
    found: Candidates = await _loop.current().submit(NextDistribution(_one(embed)))
    return Distribution(found.tokens, found.probabilities)


async def attention_mass(output: Embeds) -> list[float]:
    """How the attention of the token whose ``forward_observed`` filled this one embed was spread over the pages of that pass, in
    the order in which ``context`` and then ``writes`` first name them: the mean over heads and the observed layers, 1 in all.
    Raises what the pass failed with."""
    found: Masses = await _loop.current().submit(AttentionMass(_one(output)))
    return list(found.by_page)


def _one(embed: Embeds) -> int:
    if len(embed) != 1:
        raise UsageError(f"{embed!r} was given where one embed is wanted; choose one: embeds[0]")
    return embed.ids[0]


def _unsigned(value: int, what: str) -> int:
    if not 0 <= value < 2**32:
        raise InvalidHandle(f"{value} was given {what}; it is a whole number from 0 to {2**32 - 1}")
    return int(value)
