"""Forward passes: what to embed, where it goes, and what to compute from what the model gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from inferlet import _check, model
from inferlet._host import Forward, Source
from inferlet.errors import InvalidHandle, PieError, UsageError
from inferlet.eta.channel import Channel
from inferlet.eta.memo import traced as trace_once
from inferlet.eta.output import Observation, Output, Submitted
from inferlet.eta.trace import Traced
from inferlet.eta.working_set import Geometry, WorkingSet

if TYPE_CHECKING:
    from inferlet._loop import Loop
    from inferlet.eta.pipeline import Pipeline


Embedded = int | Output | Channel
"""A token; what an epilogue will have given; or the next value of a channel."""


class ForwardPass:
    """One pass of the model. Build it up, then ``submit`` it to a pipeline, once."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._taken: list[tuple[int, Output | Channel]] = []
        """What comes from elsewhere, each after so many of the tokens."""
        self._state: tuple[WorkingSet, Geometry] | None = None
        self._positions: list[int] | None = None
        self._mask: Sequence[Sequence[bool]] | None = None
        self._rows: list[int] | None = None
        self._traced: Traced | None = None
        self._output: Output | None = None
        self._observation: Observation | None = None
        self._adapter: str | None = None
        self._run = Submitted()

    def embed(self, tokens: Embedded | Iterable[Embedded], positions: Iterable[int] | None = None) -> None:
        """The tokens that this pass adds to the context, and where in it they count as, if not at their places.

        A token, or a row of them, may be what an earlier pass computes: its epilogue's output, not awaited, or the next value
        of a channel. This pass then runs right behind that one. Raises InvalidHandle for ids outside of the vocabulary.
        """
        pieces = [tokens] if isinstance(tokens, int | Output | Channel) else list(tokens)
        self._tokens, self._taken = [], []
        for piece in pieces:
            if isinstance(piece, Output | Channel):
                self._taken.append((len(self._tokens), piece))
            else:
                self._tokens.append(piece)
        _check_tokens(self._tokens)
        self._positions = None if positions is None else [_position(one) for one in positions]

    def mask(self, rows: Sequence[Sequence[bool]]) -> None:
        """A row for each embedded token, with a value for each place up to the geometry's end: whether the token may see it.

        What isn't written, is hidden, or comes later in the pass can't be seen in any case.
        """
        self._mask = rows

    def adapt(self, adapter: str | None) -> None:
        """Goes through one of ``model.adapters()``; None is the model alone, as it is without this call.

        Keys and values that came through different adapters may be in one context, but only those that all came through
        the same one are shared with others that begin alike. Raises InvalidHandle for a name that the model hasn't.
        """
        self._adapter = model.checked_adapter(adapter)

    def bind_state(self, context: WorkingSet, geometry: Geometry) -> None:
        """The context that is read and written, and where the tokens go."""
        context.handle()
        self._state = (context, geometry)

    def epilogue(self, function: Callable[[], Any] | Traced | None = None, *, rows: Sequence[int] | None = None) -> Any:
        """Runs ``function`` on the device after the pass, and gives an awaitable of what it returned.

        It is traced once, with ``intrinsics.logits()`` or ``hidden()`` and operations of ``inferlet.eta``. It sees those of the
        last embedded token, or of the last n where it asks for ``logits(n)``; ``rows`` chooses others, by their place in
        ``embed``, in rising order. Also a decorator: ``@step.epilogue`` or ``@step.epilogue(rows=[0])``. One that was traced
        before is taken as it is.
        """
        if function is None:
            return lambda decorated: self.epilogue(decorated, rows=rows)
        if self._output is not None:
            raise UsageError("this pass has an epilogue already; let it return a tuple of everything you want")
        self._traced = traced = function if isinstance(function, Traced) else trace_once(function)
        self._rows = None if rows is None else [int(row) for row in rows]
        if self._rows is not None and len(self._rows) < traced.rows:
            raise UsageError(f"the epilogue asks for {traced.rows} rows, and rows names {len(self._rows)}; name more")
        self._output = Output(traced, self._run)
        return self._output

    def observe(self, layers: Iterable[int], *, rows: Iterable[int] = (-1,)) -> Observation:
        """Keeps what the last embedded token attends to in these layers, of which there are ``model.attention_layers()``. Other
        tokens are chosen with ``rows``, by their place in ``embed``, in rising order.

        Gives an awaitable of a list for each token: of each page up to the geometry's end, the share of the token's attention
        that went to it, as a mean over heads and layers. It raises Unsupported where the model has no trait ``introspective``.
        """
        if self._observation is not None:
            raise UsageError("this pass is observed already; name all layers and rows at once")
        chosen = [_check.count(layer, "a layer to observe") for layer in layers]
        self._observation = Observation(chosen, [int(row) for row in rows], self._run)
        return self._observation

    def submit(self, pipeline: Pipeline) -> None:
        """The same as ``pipeline.submit(self)``."""
        pipeline.submit(self)

    def launch(self, loop: Loop) -> asyncio.Future[Any] | None:
        """Hands the pass to the host, for ``Pipeline``; the future is None if an epilogue or an observation holds it."""
        count = self._count()
        for _, one in self._taken:
            if isinstance(one, Output):
                one.check_submitted()
        try:
            request = self._request(count, *self._gathered(loop))
        except _WorthlessError as failed:
            # The host would have told whoever awaits this pass, had it heard of it first.
            self._run.answer = loop.create_future()
            self._run.answer.set_exception(failed.why)
        else:
            self._run.ticket, self._run.answer = loop.submit_named(request)
        return self._run.answer if self._output is None and self._observation is None else None

    def _count(self) -> int:
        """The tokens that it embeds."""
        if self._run.answer is not None:
            raise UsageError("this pass was submitted before; make a new ForwardPass for every step")
        if not self._tokens and not self._taken:
            raise UsageError("this pass embeds no token; call embed([…]) with at least one")
        if self._state is None:
            raise UsageError("this pass has no context; call bind_state(context, context.geometry(start, end))")
        _, geometry = self._state
        places = geometry.end - geometry.start
        if not self._taken and places != len(self._tokens):
            raise InvalidHandle(
                f"{len(self._tokens)} tokens are embedded and geometry({geometry.start}, {geometry.end}) has places for "
                f"{places}; the two must be equal"
            )
        return places

    def _gathered(self, loop: Loop) -> tuple[list[int], list[tuple[int, Source]]]:
        """The tokens that are known by now, and where the others come from."""
        tokens: list[int] = []
        embeds: list[tuple[int, Source]] = []
        before = 0
        for after, one in self._taken:
            tokens += self._tokens[before:after]
            before = after
            source = ("take", one.id, 0) if isinstance(one, Channel) else one.source(loop)
            if source is not None:
                embeds.append((len(tokens), source))
                continue
            assert isinstance(one, Output)
            try:
                known = one.tokens()
                _check_tokens(known)
            except PieError as error:
                raise _WorthlessError(error) from None
            tokens += known
        return [*tokens, *self._tokens[before:]], embeds

    def _request(self, count: int, tokens: list[int], embeds: list[tuple[int, Source]]) -> Forward:
        assert self._state is not None
        (context, geometry), traced, observation = self._state, self._traced, self._observation
        return Forward(
            context.handle(),
            tokens,
            geometry.start,
            geometry.end,
            self._read_rows(traced.rows, count) if traced else [],
            traced.wire if traced else None,
            traced.parameters if traced else [],
            self._positions,
            self._flat_mask(count, geometry.end),
            None if observation is None else (observation.layers, _rows(observation.rows, count, "observed")),
            embeds,
            traced.fetches if traced else [],
            traced.puts if traced else [],
            self._adapter,
        )

    def _flat_mask(self, count: int, end: int) -> list[bool] | None:
        if self._mask is None:
            return None
        if len(self._mask) != count or any(len(row) != end for row in self._mask):
            shape = sorted({len(row) for row in self._mask})
            raise InvalidHandle(
                f"a mask of {len(self._mask)} rows of {shape} was given; {count} tokens that may see {end} places need "
                f"{count} rows of {end}"
            )
        return [bool(seen) for row in self._mask for seen in row]

    def _read_rows(self, wanted: int, count: int) -> list[int]:
        if self._rows is not None:
            return _rows(self._rows, count, "read")
        if wanted > count:
            raise InvalidHandle(f"the epilogue sees {wanted} tokens and {count} are embedded; embed more")
        return list(range(count - wanted, count))


def _rows(named: Sequence[int], count: int, done: str) -> list[int]:
    """Their places among ``count`` tokens."""
    rows = [row + count if row < 0 else row for row in named]
    if not all(0 <= row < count for row in rows):
        raise InvalidHandle(f"rows {list(named)} are {done} and {count} tokens are embedded; rows count them from 0")
    if rows != sorted(set(rows)):
        raise InvalidHandle(f"rows {list(named)} are {done}; name each once, in rising order")
    return rows


class _WorthlessError(Exception):
    """The pass would embed what isn't there."""

    def __init__(self, why: PieError) -> None:
        super().__init__(str(why))
        self.why = why


def _check_tokens(tokens: list[int]) -> None:
    wrong = next((token for token in tokens if type(token) is not int), None)
    if wrong is not None:
        raise InvalidHandle(f"embed takes token ids, and {wrong!r} is a {type(wrong).__name__}")
    size = model.vocabulary_size()
    if tokens and not (min(tokens) >= 0 and max(tokens) < size):
        wrong = next(token for token in tokens if not 0 <= token < size)
        raise InvalidHandle(f"token {wrong} is none of this model's; its ids are 0 to {size - 1}")


def _position(value: int) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise InvalidHandle(f"{value!r} was given as a position; it is a whole number from 0 up")
    return value
