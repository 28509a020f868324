"""Level 1 from inside of an inferlet: the paper's functions on real keys and values, against whole passes of the reference."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from tests.host.hosting import finish
from tests.host.tiny_hosting import TEMPLATE, on_tiny, run_tiny
from tests.support.tiny import PAGE
from tests.support.tiny_oracle import greedy, logprobs_after
from tests.support.tiny_text import PIECES, TinyTokenizer

AUTOREGRESSIVE = Path(__file__).resolve().parents[2] / "inferlets" / "autoregressive" / "main.py"

HEAD = """
import asyncio
from inferlet import errors, model
from inferlet.traits import *

def prefill(tokens, room=16, first=0):
    kv, embeds, out = alloc_kvpage(tokens=room), alloc_emb(len(tokens)), alloc_emb()
    embed_txt(embeds, tokens, range(first, first + len(tokens)))
    forward(kv[:0], embeds, kv[:len(tokens)], out)
    return kv, embeds, out

async def after(kv, seen, token, position=None, **options):
    "What comes after ``token`` behind the first ``seen`` tokens of kv."
    e = alloc_emb()
    embed_txt(e, [token], [seen if position is None else position])
    forward(kv[:seen], e, kv[seen:seen + 1], e, **options)
    return await get_next_dist(e)
"""


def result(body: str, **options: Any) -> Any:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    ended = run_tiny(f"{HEAD}\nasync def main(input):\n{lines}\n", **options)
    assert ended.error is None, ended.traceback or ended.error
    return ended.result


def test_the_example_gives_the_tokens_of_whole_passes() -> None:
    ended = run_tiny(AUTOREGRESSIVE, {"prompt": "the end", "max_tokens": 9})
    assert ended.error is None, ended.traceback
    tokenizer = TinyTokenizer()
    expected = greedy([1, *tokenizer.encode("the end")], 9, frozenset({2}))
    assert ended.result == {"text": tokenizer.decode(expected)}


def test_a_distribution_is_the_softmax_of_the_likeliest() -> None:
    tokens, probabilities = result(
        "d = await get_next_dist(prefill([9, 8, 7])[2])\nreturn d.tokens, d.probabilities", top_k=5
    )
    expected = np.exp(logprobs_after((9, 8, 7)))
    assert tokens == np.argsort(-expected, kind="stable")[:5].tolist()
    np.testing.assert_allclose(probabilities, np.sort(expected)[::-1][:5], rtol=1e-4)


def test_every_input_may_have_an_output() -> None:
    found = result("""
kv, embeds, outs = alloc_kvpage(1), alloc_emb(4), alloc_emb(3)
embed_txt(embeds, [9, 8, 7, 6], range(4))
forward(kv[:0], embeds, kv[:4], outs)
return [(await get_next_dist(e)).max_index() for e in outs]
""")
    assert found == [greedy(tokens, 1)[0] for tokens in ([9, 8], [9, 8, 7], [9, 8, 7, 6])]


def test_a_distribution_draws_what_its_seed_and_temperature_say() -> None:
    same, cold, share = result("""
import random
d = await get_next_dist(prefill([9, 8, 7])[2])
same = [d.sample(source=random.Random(7)) for _ in range(3)]
many = [d.sample(source=random.Random(i)) for i in range(2000)]
return len(set(same)) == 1, d.sample(temperature=0) == d.max_index(), [many.count(t) / 2000 for t in d.tokens]
""")
    assert same
    assert cold
    expected = np.sort(np.exp(logprobs_after((9, 8, 7))))[::-1][:8]
    np.testing.assert_allclose(share, expected / expected.sum(), atol=0.04)


def test_pages_and_embeds_are_sliced_like_lists_of_tokens() -> None:
    shown = result("""
kv, e = alloc_kvpage(3), alloc_emb(5)
assert len(kv) == 3 * model.page_size() and len(e) == 5
parts = [kv[:3], kv[7:9], kv[8:], kv[-1], kv[5], kv[4:2], kv[2:10][6:], kv[:2] + kv[20:22], (kv[6:10] + kv[20:22])[3:5]]
ids = e.ids
assert e[1:3].ids == ids[1:3] and e[-1].ids == ids[-1:] and (e[:1] + e[3:]).ids == ids[:1] + ids[3:]
assert [part.ids for part in e] == [(one,) for one in ids] and [len(part) for part in kv[:3]] == [1, 1, 1]
return [repr(part) for part in parts], (kv[8:16] + kv[:8]).pages
""")
    assert shown[0] == [
        "<KV tokens [1][0:3]>",
        "<KV tokens [1, 2][7:9]>",
        "<KV tokens [2, 3][0:16]>",
        "<KV tokens [3][7:8]>",
        "<KV tokens [1][5:6]>",
        "<KV tokens none>",
        "<KV tokens [2][0:2]>",
        "<KV tokens [1][0:2] + [3][4:6]>",
        "<KV tokens [2][1:2] + [3][4:5]>",
    ]
    assert shown[1] == [2, 1]


def test_context_may_be_put_together_from_anywhere() -> None:
    """Tokens of two prompts' pages, in another order of places, at positions that make them one context."""
    found = result("""
a, b = prefill([3, 1, 4], first=0)[0], prefill([1, 5], first=3)[0]
e = alloc_emb()
embed_txt(e, [9], [3])
forward(a[:3], e, b[5:6], e)
return (await get_next_dist(e)).max_index()
""")
    assert found == greedy([3, 1, 4, 9], 1)[0]


def test_exported_pages_serve_another_inferlet_after_the_first_has_ended() -> None:
    writer = (
        HEAD
        + """
async def main(input):
    kv, _, out = prefill(input["document"], room=24)
    await synchronize()
    export_kvpage(kv, "document")
    return (await get_next_dist(out)).max_index()
"""
    )
    reader = (
        HEAD
        + """
async def main(input):
    kv = import_kvpage("document")
    d = await after(kv, input["seen"], input["token"])
    if input["last"]:
        withdraw_kvpage("document")
    return d.max_index()
"""
    )
    document = list(range(5, 16))

    async def body(host: Any, engine: Any) -> None:
        assert (await finish(host, writer, {"document": document})).result == greedy(document, 1)[0]
        asked = [{"seen": 11, "token": token, "last": False} for token in (50, 51, 52)]
        ended = await asyncio.gather(*[finish(host, reader, one) for one in asked])
        assert [one.result for one in ended] == [greedy([*document, token], 1)[0] for token in (50, 51, 52)], ended
        assert (await finish(host, reader, asked[0] | {"last": True})).result == ended[0].result
        assert not engine.exports

    on_tiny(body)


def test_hidden_tokens_are_not_seen_until_they_are_shown() -> None:
    whole, hidden, never, again = result("""
kv, _, _ = prefill([3, 50, 4])
whole = (await after(kv, 3, 5)).tokens
mask_kvpage(kv, [False, True] + [False] * 14)
hidden = await after(kv, 3, 5)
never = await after(kv[:1] + kv[2:], 2, 5, position=3)
mask_kvpage(kv, [False] * 16)
again = (await after(kv, 3, 5)).tokens
return whole, [hidden.tokens, hidden.probabilities], [never.tokens, never.probabilities], again
""")
    assert whole == again
    assert hidden[0] == never[0]
    np.testing.assert_allclose(hidden[1], never[1], rtol=1e-4)
    assert hidden[0] != whole or hidden[1] != whole


def test_a_mask_says_what_each_input_sees() -> None:
    """A tree of two continuations in one pass: each sees the prompt and itself."""
    found = result("""
kv, _, _ = prefill([3, 1, 4])
e, outs = alloc_emb(2), alloc_emb(2)
embed_txt(e, [7, 8], [3, 3])
forward_with_mask(kv[:3], e, kv[3:5], outs, [[True] * 3 + [True, False], [True] * 3 + [False, True]])
return [(await get_next_dist(one)).max_index() for one in outs]
""")
    assert found == [greedy([3, 1, 4, 7], 1)[0], greedy([3, 1, 4, 8], 1)[0]]


def test_copies_are_made_in_the_order_of_their_queue() -> None:
    """Nine tokens, from places that begin inside of a page to others that begin inside of another."""
    found = result("""
kv, _, _ = prefill(list(range(11, 20)))
other = alloc_kvpage(tokens=24)
copy_kvpage(kv[:9], other[5:14])
copy_kvpage(other[5:14], other[14:23])
e = alloc_emb()
embed_txt(e, [30], [9])
forward(other[14:23], e, other[23:24], e)
return (await get_next_dist(e)).max_index()
""")
    assert found == greedy([*range(11, 20), 30], 1)[0]


def test_queues_run_side_by_side_and_each_in_order() -> None:
    prompts = [[3, 1, 4], [1, 5, 9], [2, 6, 5]]
    found = result(f"""
async def run(prompt):
    queue, n = create_queue(), len(prompt)
    queue.set_priority(n)
    kv, e = alloc_kvpage(tokens=n + 6), alloc_emb(n)
    embed_txt(e, prompt, range(n))
    forward(kv[:0], e, kv[:n], e[-1], queue=queue)
    answer = []
    for i in range(n, n + 5):
        answer.append((await get_next_dist(e[-1])).max_index())
        embed_txt(e[-1], answer[-1:], [i])
        forward(kv[:i], e[-1], kv[i:i+1], e[-1], queue=queue)
    await queue.synchronize()
    await synchronize(queue)
    set_priority(-3, queue)
    dealloc_kvpage(kv)
    dealloc_emb(e)
    return answer
return await asyncio.gather(*[run(prompt) for prompt in {prompts}])
""")
    assert found == [greedy(prompt, 5) for prompt in prompts]


def test_a_freed_page_goes_back_when_its_passes_are_done() -> None:
    found = result("""
kv, e, out = prefill([1, 2, 3])
dealloc_kvpage(kv)
dealloc_emb(e)
first = (await get_next_dist(out)).max_index()
await synchronize()
return first
""")
    assert found == greedy([1, 2, 3], 1)[0]


def test_text_models_and_traits_are_told() -> None:
    told = result("""
card = model.get(model.name())
return [
    tokenize("the end"), detokenize(tokenize("the end")), model.all(), model.with_traits("forward", "tokenize"),
    model.with_traits("adapter"), list(card.traits), card.prompt_template,
    [card.name, card.description, card.version, card.licence],
    sorted(available_traits()), [one.hex() for one in get_vocabs()],
]
""")
    tokens = TinyTokenizer().encode("the end")
    traits = ["allocate", "forward", "input-text", "output-text", "tokenize", "introspective"]
    assert told == [
        tokens,
        "the end",
        ["tiny"],
        ["tiny"],
        [],
        traits,
        TEMPLATE,
        ["tiny", "", "", ""],
        sorted(traits),
        [piece.hex() for piece in PIECES],
    ]


def test_passes_longer_than_a_step_run_in_pieces() -> None:
    prompt = [token % 60 for token in range(70)]
    found = result(f"""
kv, e, out = prefill({prompt}, room=80)
return (await get_next_dist(out)).max_index()
""")
    assert len(prompt) > 32, "a step of the tiny engine has 32 rows"
    assert found == greedy(prompt, 1)[0]


def test_pages_are_as_large_as_the_model_says() -> None:
    assert result(
        "return [model.page_size(), len(alloc_kvpage(1)), len(alloc_kvpage(tokens=9)), len(alloc_kvpage(0))]"
    ) == [
        PAGE,
        PAGE,
        2 * PAGE,
        0,
    ]


def test_of_two_queues_that_of_the_higher_priority_goes_first() -> None:
    """Prompts that each take many steps: what was asked later overtakes."""
    order = result(
        """
order = []
async def run(name, priority):
    queue, prompt = create_queue(), [token % 60 for token in range(240)]
    queue.set_priority(priority)
    kv, e = alloc_kvpage(tokens=240), alloc_emb(240)
    embed_txt(e, prompt, range(240))
    forward(kv[:0], e, kv, e[-1], queue=queue)
    await get_next_dist(e[-1])
    order.append(name)
await asyncio.gather(run("low", -1), run("middle", 0), run("high", 7))
return order
""",
        settings={"rows": 8},
    )
    assert order == ["high", "middle", "low"]
