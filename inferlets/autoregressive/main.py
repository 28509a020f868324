"""The whole loop by hand: every page, embed and pass is here, as in the first listing of the Pie paper.

pie-edge run inferlets/autoregressive -- --prompt "The capital of France is"
"""

from inferlet import chat
from inferlet.traits import (
    alloc_emb,
    alloc_kvpage,
    dealloc_emb,
    dealloc_kvpage,
    detokenize,
    embed_txt,
    forward,
    get_next_dist,
    tokenize,
)


async def main(input: dict) -> dict:
    prompt = chat.prefix() + tokenize(input.get("prompt", "Hello,"))
    limit, stops = int(input.get("max_tokens", 16)), chat.stop_tokens()
    n = len(prompt)
    kv, embeds = alloc_kvpage(tokens=n + limit), alloc_emb(n)

    # The prompt's tokens fill the first n places; its last embed then holds what comes next.
    e = embeds[-1]
    embed_txt(embeds, prompt, range(n))
    forward(kv[:0], embeds, kv[:n], e)

    answer = []
    for i in range(n, n + limit):
        dist = await get_next_dist(e)
        token = dist.max_index()
        if token in stops:
            break
        answer.append(token)
        # The token goes to place i, where it sees all before it. The last one needs no successor.
        if i + 1 < n + limit:
            embed_txt(e, [token], [i])
            forward(kv[:i], e, kv[i : i + 1], e)

    dealloc_emb(embeds)
    dealloc_kvpage(kv)
    return {"text": detokenize(answer)}
