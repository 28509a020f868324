"""Answers one question, and shows the answer as it comes.

pie-edge run inferlets/chat/main.py -- --prompt "What is a monad?" --system "Be brief."
"""

from inferlet import chat, model, session
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax


def conversation(prompt: str, system: str | None) -> list[int]:
    """The tokens to start from; plain text for a model that was never taught to chat."""
    if not chat.available():
        return chat.prefix() + model.encode(f"{system}\n\n{prompt}" if system else prompt)
    opening = chat.system(system) if system else chat.preamble()
    return chat.prefix() + opening + chat.user(prompt) + chat.cue()


async def main(input: dict) -> dict:
    pending = conversation(input["prompt"], input.get("system"))
    limit = int(input.get("max_tokens", 256))
    context = WorkingSet(tokens=len(pending) + limit)
    stops, decoder = set(chat.stop_tokens()), chat.Decoder()
    seen = count = 0
    with Pipeline() as pipe:
        while count < limit:
            step = ForwardPass()
            step.embed(pending)
            step.bind_state(context, context.geometry(seen, seen + len(pending)))
            best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            seen += len(pending)
            pending = [await best]
            if pending[0] in stops:
                break
            count += 1
            if piece := decoder.push(pending):
                session.send(piece)
    if rest := decoder.flush():
        session.send(rest)
    return {"tokens": count, "stopped": count < limit}
