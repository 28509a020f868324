"""Puts a document into the cache under a key, for every inferlet of the host; or, without its tokens, takes it away."""

from inferlet.eta import WorkingSet
from turns import Conversation


async def main(input: dict) -> None:
    if not input["ids"]:
        WorkingSet.remove(input["key"])
        return
    talk = Conversation()
    talk.add(input["ids"])
    await talk.read()
    talk.context.add(input["key"])
