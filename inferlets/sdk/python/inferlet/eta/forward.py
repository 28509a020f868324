"""Forward passes: what to embed, where it goes, and what to compute from the logits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from inferlet import _check, model
from inferlet._host import Forward, Tensor
from inferlet.errors import InvalidHandle, UsageError
from inferlet.eta.memo import traced as trace_once
from inferlet.eta.trace import Traced
from inferlet.eta.working_set import Geometry, WorkingSet

if TYPE_CHECKING:
    from inferlet._loop import Loop
    from inferlet.eta.pipeline import Pipeline


class _Awaited:
    """A part of what a pass gives."""

    _called = ""

    def __init__(self) -> None:
        self._answer: asyncio.Future[list[Tensor]] | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        if self._answer is None:
            raise UsageError(f"this {self._called}'s pass wasn't submitted yet; submit it to a pipeline, then await")
        tensors = yield from self._answer.__await__()
        return self._take([_nest(tensor.shape, tensor.elements) for tensor in tensors])

    def _take(self, values: list[Any]) -> Any:
        raise NotImplementedError


class Output(_Awaited):
    """What an epilogue will have computed; await it, as often as you like."""

    _called = "epilogue"

    def __init__(self, traced: Traced) -> None:
        super().__init__()
        self._traced = traced
        self._observed = False

    def _take(self, values: list[Any]) -> Any:
        return self._traced.pack(values[:-1] if self._observed else values)


class Observation(_Awaited):
    """What a pass will have attended to; await it, as often as you like: of each observed token, the share of its attention that
    went to each page."""

    _called = "observation"

    def __init__(self, layers: list[int], rows: list[int]) -> None:
        super().__init__()
        self.layers = layers
        self.rows = rows

    def _take(self, values: list[Any]) -> Any:
        return values[-1]


def _nest(shape: Sequence[int], elements: list[Any]) -> Any:
    """A scalar is a number, anything else nested lists."""
    if not shape:
        return elements[0]
    if len(shape) == 1:
        return elements
    width = len(elements) // shape[0] if shape[0] else 0
    return [_nest(shape[1:], elements[i * width : (i + 1) * width]) for i in range(shape[0])]


class ForwardPass:
    """One pass of the model. Build it up, then ``submit`` it to a pipeline, once."""

    def __init__(self) -> None:
        self._tokens: list[int] | None = None
        self._state: tuple[WorkingSet, Geometry] | None = None
        self._positions: list[int] | None = None
        self._mask: Sequence[Sequence[bool]] | None = None
        self._rows: list[int] | None = None
        self._traced: Traced | None = None
        self._output: Output | None = None
        self._observation: Observation | None = None
        self._submitted = False

    def embed(self, tokens: Iterable[int], positions: Iterable[int] | None = None) -> None:
        """The tokens that this pass adds to the context, and where in it they count as, if not at their places. Raises
        InvalidHandle for ids outside of the vocabulary."""
        if isinstance(tokens, Output):
            raise UsageError("embed was given an epilogue that wasn't awaited; write embed([await output])")
        tokens = list(tokens)
        if not all(type(token) is int for token in tokens):
            wrong = next(token for token in tokens if type(token) is not int)
            raise InvalidHandle(f"embed takes token ids, and {wrong!r} is a {type(wrong).__name__}")
        if tokens and not (min(tokens) >= 0 and max(tokens) < model.vocabulary_size()):
            wrong = next(token for token in tokens if not 0 <= token < model.vocabulary_size())
            raise InvalidHandle(
                f"token {wrong} is none of this model's; its ids are 0 to {model.vocabulary_size() - 1}"
            )
        self._tokens = tokens
        self._positions = None if positions is None else [_position(one) for one in positions]

    def mask(self, rows: Sequence[Sequence[bool]]) -> None:
        """A row for each embedded token, with a value for each place up to the geometry's end: whether the token may see it.

        What isn't written, is hidden, or comes later in the pass can't be seen in any case.
        """
        self._mask = rows

    def bind_state(self, context: WorkingSet, geometry: Geometry) -> None:
        """The context that is read and written, and where the tokens go."""
        context.handle()
        self._state = (context, geometry)

    def epilogue(self, function: Callable[[], Any] | Traced | None = None, *, rows: Sequence[int] | None = None) -> Any:
        """Runs ``function`` on the device after the pass, and gives an awaitable of what it returned.

        It is traced once, with ``intrinsics.logits()`` and the operations of ``inferlet.eta``. It sees the logits of the last
        embedded token, or of the last n where it asks for ``logits(n)``; ``rows`` chooses others, by their place in
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
            raise UsageError(
                f"the epilogue asks for {traced.rows} rows of logits, and rows names {len(self._rows)}; name more"
            )
        self._output = Output(traced)
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
        self._observation = Observation(chosen, [int(row) for row in rows])
        return self._observation

    def submit(self, pipeline: Pipeline) -> None:
        """The same as ``pipeline.submit(self)``."""
        pipeline.submit(self)

    def launch(self, loop: Loop) -> asyncio.Future[Any] | None:
        """Hands the pass to the host, for ``Pipeline``; the future is None if an epilogue or an observation holds it."""
        future = loop.submit(self._request())
        self._submitted = True
        if self._output is not None:
            self._output._answer, self._output._observed = future, self._observation is not None
        if self._observation is not None:
            self._observation._answer = future
        return future if self._output is None and self._observation is None else None

    def _request(self) -> Forward:
        if self._submitted:
            raise UsageError("this pass was submitted before; make a new ForwardPass for every step")
        if not self._tokens:
            raise UsageError("this pass embeds no token; call embed([…]) with at least one")
        if self._state is None:
            raise UsageError("this pass has no context; call bind_state(context, context.geometry(start, end))")
        context, geometry = self._state
        count = len(self._tokens)
        if geometry.end - geometry.start != count:
            raise InvalidHandle(
                f"{count} tokens are embedded and geometry({geometry.start}, {geometry.end}) has places for "
                f"{geometry.end - geometry.start}; the two must be equal"
            )
        traced, observation = self._traced, self._observation
        return Forward(
            context.handle(),
            self._tokens,
            geometry.start,
            geometry.end,
            self._read_rows(traced.rows, count) if traced else [],
            traced.wire if traced else None,
            traced.parameters if traced else [],
            self._positions,
            self._flat_mask(count, geometry.end),
            None if observation is None else (observation.layers, _rows(observation.rows, count, "observed")),
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
            raise InvalidHandle(f"the epilogue sees the logits of {wanted} tokens and {count} are embedded; embed more")
        return list(range(count - wanted, count))


def _rows(named: Sequence[int], count: int, done: str) -> list[int]:
    """Their places among ``count`` tokens."""
    rows = [row + count if row < 0 else row for row in named]
    if not all(0 <= row < count for row in rows):
        raise InvalidHandle(f"rows {list(named)} are {done} and {count} tokens are embedded; rows count them from 0")
    if rows != sorted(set(rows)):
        raise InvalidHandle(f"rows {list(named)} are {done}; name each once, in rising order")
    return rows


def _position(value: int) -> int:
    if type(value) is not int or not 0 <= value < 2**32:
        raise InvalidHandle(f"{value!r} was given as a position; it is a whole number from 0 up")
    return value
