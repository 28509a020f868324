"""One of a ring: it speaks when it is spoken to."""

import dialogue
from inferlet import messaging, model, session
from turns import Conversation


async def main(input: dict) -> list:
    talk, topics, own = Conversation(), input["topics"], input["own"]
    talk.add(input["prompt"])
    spoken = []
    with messaging.subscribe(topics[own]) as inbox:
        session.send("listening")
        for turn in range(input["turns"]):
            if own == 0 and turn == 0:
                await session.receive()
            else:
                talk.add(model.encode(dialogue.heard(await inbox.receive())))
            spoken.append(await talk.generate(input["turn"]))
            if turn + 1 < input["turns"] or not input["last"]:
                messaging.broadcast(topics[(own + 1) % len(topics)], model.decode(spoken[-1]))
    return spoken
