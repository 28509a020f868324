"""An agent that reads the documents of some APIs and calls each API twice in a turn of its own: the rungs of a ladder.

``key``: the documents are found in the cache, under it. ``first``: they stand before the agent's own words, where those of all
agents are alike. ``early``: a call is made as soon as its text is there, while the model writes on. ``masked``: what won't be
needed any more is hidden from later tokens.
"""

import asyncio

import dialogue
from inferlet import http, model
from inferlet.eta import WorkingSet
from turns import Conversation


async def main(input: dict) -> list:
    documents, own = input["documents"], input["own"]
    before = [] if input["first"] or input["key"] else own
    ends = [len(before) + sum(map(len, documents[:count])) for count in range(len(documents) + 1)]
    talk = begin(input, before)
    if not before:
        talk.add(own)
    turns = []
    for api in range(len(documents)):
        made, answers = await call_twice(talk, input, 2 * api)
        turns.append(made)
        talk.add(model.encode("".join(map(dialogue.answered, answers))))
        if input["masked"]:
            talk.context.hide(ends[api], [True] * (ends[api + 1] - ends[api]))
    return [*turns, await talk.generate(input["turn"])]


def begin(input: dict, before: list) -> Conversation:
    """A conversation that has the documents in it."""
    if input["key"]:
        found = WorkingSet.find(input["key"])
        return Conversation(found, seen=sum(map(len, input["documents"])))
    talk = Conversation()
    talk.add(before)
    for document in input["documents"]:
        talk.add(document)
    return talk


async def call_twice(talk: Conversation, input: dict, number: int) -> tuple[list, list]:
    """A turn, and the answers to its two calls, whose texts end after a third and two thirds of it."""
    calls = []

    def fire() -> None:
        calls.append(asyncio.create_task(ask(input["tool"], number + len(calls))))

    third = input["turn"] // 3
    made = await talk.generate(input["turn"], {third: fire, 2 * third: fire} if input["early"] else None)
    while len(calls) < 2:
        fire()
    return made, await asyncio.gather(*calls)


async def ask(tool: str, call: int) -> str:
    return (await http.post(f"{tool}/search", json=dialogue.search(call))).json()
