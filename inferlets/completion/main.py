"""What every endpoint of the server runs: a conversation or a text goes in, events of the answer come out as messages.

The input is ``pie_edge.server.generation.Request.as_input()``; what the messages are is said in ``pie_edge/server/events.py``.
"""

from typing import Any

from choices import Choices
from inferlet import errors
from inferlet.eta import WorkingSet
from prompts import Prompt, tokens_of
from sink import Sink


async def main(input: dict[str, Any]) -> None:
    sink = Sink()
    try:
        match input.get("do", "generate"):
            case "generate":
                await Choices(Prompt(input), sink).run()
            case "count":
                sink.add("n", len(tokens_of(input["prompt"])))
            case "forget":
                WorkingSet.remove(input["name"])
        sink.flush()
    except errors.PieError as error:
        sink.refuse(error)
        raise
