"""A ReACT agent: after each turn but the last it asks a tool over HTTP, while its context stays in the cache."""

import dialogue
from inferlet import http, model
from turns import Conversation


async def main(input: dict) -> list:
    talk = Conversation()
    talk.add(input["prompt"])
    turns = []
    for call in range(input["calls"]):
        turns.append(await talk.generate(input["turn"]))
        answer = await http.post(f"{input['tool']}/search", json=dialogue.search(call))
        talk.add(model.encode(dialogue.observed(answer.json())))
    return [*turns, await talk.generate(input["turn"])]
