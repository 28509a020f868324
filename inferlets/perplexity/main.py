"""How well the model foretells a text: the log probability of each of its tokens, given those before it in a sliding window.

    pie-edge run inferlets/perplexity -- --text "…" --window 512 --stride 256

``pie-edge eval`` runs this on a file. The text is cut into windows of ``window`` tokens that begin ``stride`` tokens apart. Each
token is scored once, in the first window that reaches it: the smaller the stride, the more context a token has at least. A model
that expects a token of its own at the beginning gets it in every window. For others nothing comes before a window's first token,
which isn't scored where no window before has it: the text's first, and one more for each window if they don't overlap.
"""

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

from inferlet import Context, chat, errors, model, session

AT_ONCE = 4
"""Windows in work: they share the device's steps."""


def windows(tokens: int, size: int, stride: int, before: int) -> Iterator[tuple[int, int, int]]:
    """Where each window begins, where what it scores begins, and where it ends. A token needs ``before`` others in its window."""
    begin = reached = 0
    while reached < tokens:
        end = min(begin + size, tokens)
        if (first := max(reached, begin + before)) < end:
            yield begin, first, end
        begin, reached = begin + stride, end


class Perplexity:
    def __init__(self, text: str, window: int, stride: int) -> None:
        self.prefix = chat.prefix()
        self.tokens = model.encode(text)
        size = window - len(self.prefix)
        self.stride = min(stride, size)
        self.windows = list(windows(len(self.tokens), size, self.stride, 0 if self.prefix else 1))
        self.scored = sum(end - first for _, first, end in self.windows)
        self.bytes = sum(
            len(model.spelling(token)) for _, first, end in self.windows for token in self.tokens[first:end]
        )
        self._done = 0
        self._room = asyncio.Semaphore(AT_ONCE)

    async def nats(self) -> float:
        """What all scored tokens lose together."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._window(*window)) for window in self.windows]
        return math.fsum(task.result() for task in tasks)

    async def _window(self, begin: int, first: int, end: int) -> float:
        async with self._room:
            context = Context()
            context.truncate(0)
            context.fill(self.prefix + self.tokens[begin:first])
            scored = await context.fill_scored(self.tokens[first:end])
            context.close()
        self._done += end - first
        session.send(json.dumps({"done": self._done, "of": self.scored}))
        return -math.fsum(one.logprob or 0.0 for one in scored)


async def main(input: dict[str, Any]) -> dict[str, Any]:
    window = int(input.get("window", min(1024, model.context_size())))
    if window > model.context_size():
        raise errors.UsageError(
            f"a window of {window} tokens, and {model.name()} sees {model.context_size()} at once; give a window of so many "
            "at most"
        )
    stride = int(input.get("stride", max(window // 2, 1)))
    if stride > window:
        raise errors.UsageError(
            f"a stride of {stride} tokens leaves some out between windows of {window}; give a stride of {window} at most"
        )
    work = Perplexity(input["text"], window, stride)
    if not work.scored:
        raise errors.UsageError(
            f"{len(work.tokens)} tokens, a window of {window} and a stride of {work.stride} leave nothing to score; "
            "give two tokens or more, and a window of 3 or more"
        )
    nats = await work.nats()
    return {
        "tokens": len(work.tokens),
        "scored": work.scored,
        "bytes": work.bytes,
        "nats": nats,
        "nats_per_token": nats / work.scored,
        "perplexity": math.exp(nats / work.scored),
        "bits_per_byte": nats / math.log(2) / work.bytes,
        "window": window,
        "stride": work.stride,
    }
