"""A context that stays in the cache from one turn to the next, for agents that write a fixed number of tokens in each."""

from inferlet import model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax


class Conversation:
    """``context`` holds ``seen`` tokens already; what is added goes to the model with the next turn."""

    def __init__(self, context: WorkingSet | None = None, seen: int = 0) -> None:
        self.context = context or WorkingSet(tokens=0)
        self.seen = seen
        self._pending: list[int] = []
        self._pipe = Pipeline()

    def add(self, tokens: list[int]) -> None:
        self._pending += tokens

    async def generate(self, count: int, after: dict | None = None) -> list[int]:
        """``count`` greedy tokens, whatever they are. ``after`` has what to call once so many of them are there."""
        self._make_room(len(self._pending) + count)
        made: list[int] = []
        while len(made) < count:
            pending, self._pending = self._pending, []
            made.append(await self._forward(pending))
            self._pending = made[-1:]
            if after and len(made) in after:
                after[len(made)]()
        return made

    async def read(self) -> None:
        """Puts what was added into the cache, without a turn."""
        self._make_room(len(self._pending))
        pending, self._pending = self._pending, []
        await self._forward(pending)

    async def _forward(self, tokens: list[int]) -> int:
        """The likeliest token after these."""
        step = ForwardPass()
        step.embed(tokens)
        step.bind_state(self.context, self.context.geometry(self.seen, self.seen + len(tokens)))
        best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
        self._pipe.submit(step)
        self.seen += len(tokens)
        return await best

    def _make_room(self, more: int) -> None:
        missing = self.seen + more - self.context.capacity
        if missing > 0:
            self.context.reserve(-(-missing // model.page_size()))
