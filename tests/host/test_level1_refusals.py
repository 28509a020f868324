"""What can't be at level 1: a typed error at the line that asked, which changes nothing, and leaves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge import errors as ours
from pie_edge.control.engine import Engine
from tests.host.hosting import finish
from tests.host.test_level1 import HEAD, result
from tests.host.tiny_hosting import on_tiny
from tests.support.tiny_oracle import greedy

# What an inferlet asks that holds the pages ``kv`` (two, of which three tokens are written), the embeds ``e`` (two, the first
# with a token), and ``gone``, which it has freed. The class, and a part of the message.
REFUSED = {
    "a page it doesn't own": ("dealloc_kvpage(KvPages.whole([99]))", "InvalidHandle", "no KV page 99"),
    "a page freed twice": ("dealloc_kvpage(gone)", "InvalidHandle", "freed or never allocated"),
    "a page named twice": ("dealloc_kvpage(kv[:8] + kv[:8])", "InvalidHandle", "one of them twice"),
    "a part of a page freed": ("dealloc_kvpage(kv[:3])", "UsageError", "takes whole pages"),
    "an embed it doesn't own": ("dealloc_emb(Embeds([99]))", "InvalidHandle", "no embed 99"),
    "an embed freed twice": ("dealloc_emb(lost)", "InvalidHandle", "freed or never allocated"),
    "an embed named twice": ("dealloc_emb(e[:1] + e[:1])", "InvalidHandle", "one of them twice"),
    "more pages than there are": ("alloc_kvpage(10**6)", "ResourceError", "asked for 1000000 KV pages"),
    "fewer than no pages": ("alloc_kvpage(-1)", "InvalidHandle", "-1 was given"),
    "pages by two counts": ("alloc_kvpage(1, tokens=3)", "UsageError", "not both"),
    "more embeds than allowed": ("alloc_emb(65536)", "ResourceError", "the most is 65536"),
    "a token beyond the vocabulary": ("embed_txt(e[:1], [64], [0])", "InvalidHandle", "token 64"),
    "a negative token": ("embed_txt(e[:1], [-1], [0])", "InvalidHandle", "-1 was given as a token"),
    "a position beyond the context": ("embed_txt(e[:1], [5], [256])", "ContextOverflow", "limit is 256"),
    "a negative position": ("embed_txt(e[:1], [5], [-1])", "InvalidHandle", "-1 was given as a position"),
    "tokens and embeds of two lengths": ("embed_txt(e, [5], [0])", "InvalidHandle", "into 2 embeds"),
    "an embed that isn't there": ("embed_txt(lost, [5], [0])", "InvalidHandle", "freed or never allocated"),
    "a pass without inputs": ("forward(kv[:3], e[:0], kv[3:3])", "InvalidHandle", "forwards no embed"),
    "a pass of an empty embed": ("forward(kv[:3], e[1], kv[3:4])", "InvalidHandle", "holds nothing"),
    "a pass over a freed page": ("forward(gone[:1], e[0], kv[3:4])", "InvalidHandle", "freed or never allocated"),
    "a pass into a freed page": ("forward(kv[:3], e[0], gone[:1])", "InvalidHandle", "freed or never allocated"),
    "more places than inputs": ("forward(kv[:3], e[0], kv[3:5])", "InvalidHandle", "1 embeds into 2 places"),
    "no place for an input": ("forward(kv[:3], e[0], kv[3:3])", "InvalidHandle", "1 embeds into 0 places"),
    "more outputs than inputs": ("forward(kv[:3], e[0], kv[3:4], e)", "InvalidHandle", "2 outputs of 1 inputs"),
    "an output that isn't there": ("forward(kv[:3], e[0], kv[3:4], lost)", "InvalidHandle", "freed or never allocated"),
    "a mask of too few rows": (
        "forward(kv[:3], e[0], kv[3:4], mask=[])",
        "InvalidHandle",
        "1 inputs that see 4 tokens",
    ),
    "a mask of too few tokens": (
        "forward(kv[:3], e[0], kv[3:4], mask=[[True]])",
        "InvalidHandle",
        "rows of [1] was given",
    ),
    "a mask of too many tokens": ("forward(kv[:3], e[0], kv[3:4], mask=[[True] * 5])", "InvalidHandle", "rows of [5]"),
    "too few tokens to hide": ("mask_kvpage(kv, [True] * 3)", "InvalidHandle", "3 values were given for 16 tokens"),
    "tokens of a part of a page to hide": ("mask_kvpage(kv[:3], [True] * 3)", "UsageError", "takes whole pages"),
    "a freed page to hide": ("mask_kvpage(gone, [True] * 8)", "InvalidHandle", "freed or never allocated"),
    "copies of another length": ("copy_kvpage(kv[:3], kv[8:10])", "InvalidHandle", "3 tokens were to be copied to 2"),
    "a copy to a freed page": ("copy_kvpage(kv[:3], gone[:3])", "InvalidHandle", "freed or never allocated"),
    "an export of a name taken": ("export_kvpage(kv, 'taken')", "InvalidHandle", "'taken', which is taken"),
    "an export without a name": ("export_kvpage(kv, '')", "ResourceError", "0 characters"),
    "an export of a freed page": ("export_kvpage(gone, 'x')", "InvalidHandle", "freed or never allocated"),
    "an import of an unknown name": ("import_kvpage('unknown')", "InvalidHandle", "'unknown'; there are taken"),
    "the end of an unknown export": ("withdraw_kvpage('unknown')", "InvalidHandle", "'unknown'; there are taken"),
    "what comes after nothing": ("await get_next_dist(e[0])", "InvalidHandle", "which no pass has filled"),
    "what comes after a freed embed": ("await get_next_dist(lost)", "InvalidHandle", "freed or never allocated"),
    "what comes after two embeds": ("await get_next_dist(e)", "UsageError", "one embed is wanted"),
    "an index beyond the tokens": ("kv[16]", "InvalidHandle", "number 16 of 16"),
    "a slice with a step": ("kv[::2]", "UsageError", "a step of 2"),
    "a priority beyond 32 bits": ("set_priority(2**31)", "UsageError", "32 bits"),
    "a model that isn't there": ("model.get('gpt')", "ModelNotFound", "'gpt'; there is tiny"),
    "a trait that isn't one": ("model.with_traits('speech')", "UsageError", "speech is no trait"),
    "an image": ("embed_img(e, b'', 0)", "Unsupported", "tiny has no trait input-image; its traits are allocate"),
    "the size of an image": ("num_embs_needed(10, 10)", "Unsupported", "no trait input-image"),
    "an adapter": ("forward_with_adapter('a', kv[:3], e[0], kv[3:4])", "Unsupported", "no trait adapter"),
    "attention that nothing has": (
        "await attention_mass(e[0])",
        "InvalidHandle",
        "which no pass has filled",
    ),
    "attention of a freed embed": ("await attention_mass(lost)", "InvalidHandle", "freed or never allocated"),
    "attention of two embeds": ("await attention_mass(e)", "UsageError", "one embed is wanted"),
    "attention that wasn't observed": (
        "await attention_mass(out)",
        "InvalidHandle",
        "observed no layer; ask for it with",
    ),
    "no layer to observe": ("forward_observed([], kv[:3], e[0], kv[3:4], out)", "InvalidHandle", "observes no layer"),
    "a layer beyond the last": (
        "forward_observed([0, 2], kv[:3], e[0], kv[3:4], out)",
        "InvalidHandle",
        "observes layer 2; the model has layers 0…1",
    ),
    "a negative layer": (
        "forward_observed([-1], kv[:3], e[0], kv[3:4], out)",
        "InvalidHandle",
        "-1 was given as a layer",
    ),
    "a layer twice": ("forward_observed([1, 1], kv[:3], e[0], kv[3:4], out)", "InvalidHandle", "one of them twice"),
    "nothing to observe": ("forward_observed([1], kv[:3], e[0], kv[3:4], out[:0])", "InvalidHandle", "of no row"),
}

PROGRAM = """
async def main(input):
    taken = alloc_kvpage(1)
    export_kvpage(taken, "taken")
    gone, lost = alloc_kvpage(1), alloc_emb()
    dealloc_kvpage(gone)
    dealloc_emb(lost)
    kv, _, out = prefill([3, 1, 4])
    await get_next_dist(out)
    e = alloc_emb(2)
    embed_txt(e[0], [5], [3])
    try:
        %s
    except errors.PieError as error:
        told = [type(error).__name__, error.code, str(error)]
    else:
        told = None
    forward(kv[:3], e[0], kv[3:4], out)
    return told, (await get_next_dist(out)).max_index()
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """All of them, on one host."""

    async def body(host: Any, engine: Engine) -> dict[str, Any]:
        found = {}
        for case, (statement, _, _) in REFUSED.items():
            found[case] = await finish(host, HEAD + PROGRAM % statement, name="program")
            engine.pool.give_back(engine.exports.pop("taken"))
        return found

    return on_tiny(body)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_at_its_line_and_changes_nothing(case: str, told: dict[str, Any]) -> None:
    _, kind, said = REFUSED[case]
    ended = told[case]
    assert ended.error is None, ended.traceback
    refusal, after = ended.result
    assert refusal is not None, "it was allowed"
    assert refusal[0] == kind
    assert refusal[1] == getattr(ours, kind).code
    assert said in refusal[2]
    assert after == greedy([3, 1, 4, 5], 1)[0]


def test_what_goes_wrong_later_is_told_by_synchronize_and_once() -> None:
    assert (
        result("""
kv, other = alloc_kvpage(1), alloc_kvpage(1)
copy_kvpage(kv[:2], other[:2])
try:
    await synchronize()
except errors.InvalidHandle as error:
    told = str(error)
await synchronize()
return told
""")
        == "program copies token 0 of KV page 1, where nothing was written"
    )


def test_what_went_wrong_is_told_by_the_next_call_on_its_queue_and_by_no_other() -> None:
    assert (
        result("""
kv, other, e, queue = alloc_kvpage(1), alloc_kvpage(1), alloc_emb(), create_queue()
copy_kvpage(kv[:2], other[:2])
await asyncio.sleep(0.05)
embed_txt(e, [3], [0])
forward(kv[:0], e, kv[:1], e, queue=queue)
await get_next_dist(e)
try:
    mask_kvpage(other, [True] * 8)
except errors.InvalidHandle as error:
    told = str(error)
mask_kvpage(other, [True] * 8)
await synchronize()
return told
""")
        == "program copies token 0 of KV page 1, where nothing was written"
    )


def test_pages_are_exported_only_when_nothing_writes_them_any_more() -> None:
    said, after = result("""
prompt = [token % 60 for token in range(200)]  # takes several steps
kv, e, out = prefill(prompt, room=208)
try:
    export_kvpage(kv, "early")
except errors.InvalidHandle as error:
    said = str(error)
await synchronize()
export_kvpage(kv, "late")
mine = import_kvpage("late")
return said, (await after(mine, 200, 5)).max_index()
""")
    assert "which a pass under way still names; synchronize its queue first" in said
    assert after == greedy([*(token % 60 for token in range(200)), 5], 1)[0]


def test_a_device_that_fails_is_told_where_the_pass_is_awaited_and_nowhere_else() -> None:
    source = (
        HEAD
        + """
async def main(input):
    kv, e, out = prefill([3, 1, 4])
    try:
        await get_next_dist(out)
    except errors.DeviceLost as error:
        told = str(error)
    await synchronize()
    kv, e, out = prefill([3, 1, 4])
    return told, (await get_next_dist(out)).max_index()
"""
    )

    async def body(host: Any, engine: Engine) -> Any:
        backend: Any = engine._device._backend
        backend.fail_next = ours.DeviceLost("it went away")
        return await finish(host, source)

    ended = on_tiny(body)
    assert ended.error is None, ended.traceback
    assert ended.result == ["it went away", greedy([3, 1, 4], 1)[0]]


def test_one_that_holds_too_much_ends_alone_with_out_of_pages() -> None:
    """Two inferlets want eight pages each, and there are ten, none of which may be swapped out: the later one ends."""
    source = (
        HEAD
        + """
async def main(input):
    kv, e, out = prefill([token % 60 for token in range(60)], room=64)
    first = (await get_next_dist(out)).max_index()
    await asyncio.sleep(0.2)
    return [first, (await after(kv, 60, 7)).max_index()]
"""
    )
    prompt = [token % 60 for token in range(60)]

    async def body(host: Any, engine: Engine) -> Any:
        return await asyncio.gather(*[finish(host, source, name=name) for name in ("first", "second")])

    from tests.backend.test_engine import PAGE_BYTES

    first, second = on_tiny(body, settings={"kv_memory": 10 * PAGE_BYTES, "park_memory": 0})
    assert first.error is None, first.traceback
    assert first.result == [greedy(prompt, 1)[0], greedy([*prompt, 7], 1)[0]]
    assert getattr(second.error, "cause", None) == "out-of-pages", second


HANDLES_OF_ANOTHER = (
    HEAD
    + """
async def main(input):
    try:
        dealloc_kvpage(KvPages.whole(input["pages"]))
    except errors.InvalidHandle as error:
        return str(error)
"""
)


def test_ids_of_another_inferlet_mean_nothing() -> None:
    holder = (
        HEAD + "async def main(input):\n    kv = alloc_kvpage(3)\n    await asyncio.sleep(0.3)\n    return kv.pages"
    )

    async def body(host: Any, _: Engine) -> Any:
        holding = asyncio.create_task(finish(host, holder))
        await asyncio.sleep(0.1)
        stranger = await finish(host, HANDLES_OF_ANOTHER, {"pages": [3]}, name="stranger")
        return stranger, await holding

    stranger, holding = on_tiny(body)
    assert stranger.result == "stranger has no KV page 3; it was freed or never allocated"
    assert holding.result == [1, 2, 3]
