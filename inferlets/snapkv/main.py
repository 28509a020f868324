"""Reads a long prompt whole, keeps the pages of it that its last words look at, and answers with those alone.

    pie-edge run inferlets/snapkv -- --prompt "…" --keep 8

The last words of a prompt tell which of the rest an answer will need (SnapKV, arXiv:2404.14469; H2O, arXiv:2306.14048). So the
prompt's pass observes them: how much of their attention goes to each page. The first page stays, because attention rests there
when nothing else matters, and so do the pages of the last words. Of the others the ``keep`` heaviest stay, and the rest go back
to the host. Tokens count as at the positions they had.
"""

from inferlet import chat, model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

WINDOW = 16
"""Tokens at the end of the prompt that are observed."""


def choose(weights: list[float], keep: int) -> list[int]:
    """The pages to keep, in order."""
    recent = max(len(weights) - 1 - -(-WINDOW // model.page_size()), 0)
    others = sorted(range(1, recent), key=lambda page: -weights[page])
    return sorted({0, *others[:keep], *range(recent, len(weights))})


def forward(context: WorkingSet, tokens: list[int], place: int, position: int) -> ForwardPass:
    step = ForwardPass()
    step.embed(tokens, range(position, position + len(tokens)))
    step.bind_state(context, context.geometry(place, place + len(tokens)))
    return step


def best_token() -> object:
    return reduce_argmax(intrinsics.logits())


async def main(input: dict) -> dict:
    prompt = chat.prefix() + model.encode(input["prompt"])
    limit, stops = int(input.get("max_tokens", 32)), set(chat.stop_tokens())
    context = WorkingSet(tokens=len(prompt) + limit)
    with Pipeline() as pipe:
        whole = forward(context, prompt, 0, 0)
        best = whole.epilogue(best_token)
        seen = whole.observe(range(model.attention_layers()), rows=range(-min(WINDOW, len(prompt)), 0))
        pipe.submit(whole)
        answer, masses = [await best], await seen

        weights = [sum(column) / len(masses) for column in zip(*masses, strict=True)]
        kept = choose(weights, int(input.get("keep", 8)))
        dropped = [page for page in range(len(weights)) if page not in kept]
        for page in reversed(dropped):  # those after a page move down
            context.discard(page, 1)

        position, gap = len(prompt), len(dropped) * model.page_size()
        while len(answer) < limit and answer[-1] not in stops:
            step = forward(context, answer[-1:], position - gap, position)
            best = step.epilogue(best_token)
            pipe.submit(step)
            answer.append(await best)
            position += 1
    return {"text": model.decode(answer), "kept": kept, "weights": weights}
