"""Continues token ids greedily for ``count`` tokens, whatever they are: the quickstart without text and without an early end."""

from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax


async def main(input: dict) -> dict:
    pending, count = input["ids"], input["count"]
    context = WorkingSet(tokens=len(pending) + count)
    seen, answer = 0, []
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
    return {"ids": answer}
