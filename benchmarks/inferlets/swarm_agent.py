"""One of a ring: it speaks when it is spoken to. The first one begins."""

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
            if own or turn:
                talk.add(model.encode(dialogue.heard(await inbox.receive())))
            spoken.append(await talk.generate(input["turn"]))
            if input["last"] and turn == input["turns"] - 1:
                break
            if turn == 0:
                await session.receive()  # the neighbour listens
            messaging.broadcast(topics[(own + 1) % len(topics)], model.decode(spoken[-1]))
    return spoken
