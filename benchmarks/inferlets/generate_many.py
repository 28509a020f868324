"""``contexts`` greedy continuations in one inferlet, side by side: their tokens come several at a wake."""

import asyncio

from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax


async def generate(prompt: list, count: int) -> list:
    pending, seen, answer = prompt, 0, []
    context = WorkingSet(tokens=len(prompt) + count)
    with Pipeline() as pipe:
        while len(answer) < count:
            step = ForwardPass()
            step.embed(pending)
            step.bind_state(context, context.geometry(seen, seen + len(pending)))
            best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            seen += len(pending)
            pending = [await best]
            answer += pending
    return answer


async def main(input: dict) -> dict:
    prompts = [[number + 1, *input["ids"]] for number in range(input["contexts"])]
    return {"ids": await asyncio.gather(*(generate(prompt, input["count"]) for prompt in prompts))}
