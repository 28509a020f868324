"""Continues a prompt, greedily: the whole generation loop, in the inferlet's own hands.

pie-edge run inferlets/quickstart/main.py -- --prompt "The capital of France is"
"""

from inferlet import chat, model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax


async def main(input: dict) -> dict:
    pending = chat.prefix() + model.encode(input["prompt"])
    limit = int(input.get("max_tokens", 32))
    context = WorkingSet(tokens=len(pending) + limit)
    seen, answer = 0, []
    with Pipeline() as pipe:
        while len(answer) < limit and not set(answer) & set(chat.stop_tokens()):
            step = ForwardPass()
            step.embed(pending)
            step.bind_state(context, context.geometry(seen, seen + len(pending)))
            best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            seen += len(pending)
            pending = [await best]
            answer += pending
    return {"text": model.decode(answer)}
