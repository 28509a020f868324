"""A CodeACT agent: after each turn but the last it runs code, inside of the sandbox that it is in itself."""

import dialogue
from inferlet import model
from turns import Conversation


async def main(input: dict) -> list:
    talk = Conversation()
    talk.add(input["prompt"])
    turns = []
    for call in range(input["calls"]):
        turns.append(await talk.generate(input["turn"]))
        talk.add(model.encode(dialogue.printed(call, dialogue.run(dialogue.code(call)))))
    return [*turns, await talk.generate(input["turn"])]
