"""What an inferlet can wait for: of each case of the WIT variant ``request``, how it begins, and which ``value`` it gives."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from pie_edge.control.observation import Observation
from pie_edge.control.queue import ForwardCall, HostTensor, Next, OutputOf, Source
from pie_edge.errors import InferletError, InvalidHandle, PieError
from pie_edge.host.constraints import allowed
from pie_edge.host.http import Request as HttpRequest

if TYPE_CHECKING:
    from pie_edge.host.guest import Guest
    from pie_edge.host.instance import Instance

Value = tuple[str, Any]
"""``(case, payload)`` of the WIT variant ``value``."""
Begun = tuple["asyncio.Future[Any]", Callable[[Any], Value]]
"""What to wait for, and what its result is to the guest. The latter may raise a PieError, too."""

NOTHING: Value = ("nothing", None)

# dtype of a tensor → its case in WIT, and the element type of its memory
_CASES = {"f32": ("floats", "f"), "i32": ("signed", "i"), "u32": ("unsigned", "I"), "bool": ("bools", "B")}
_CODES = dict(_CASES.values())
ELEMENTS = {case: dtype for dtype, (case, _) in _CASES.items()}
"""The dtype of each case of the WIT variant ``elements``."""


def as_bytes(value: tuple[str, Any]) -> tuple[str, bytes]:
    """Elements as a guest gives them: their dtype, and their memory."""
    case, values = value
    return ELEMENTS[case], array(_CODES[case], values).tobytes()


def begin(guest: Guest, ticket: int, kind: str, payload: Any) -> Begun:
    """Raises a PieError for a request that can't be."""
    return _KINDS[kind](guest, ticket, payload)


def _forward(guest: Guest, ticket: int, call: tuple[Any, ...]) -> Begun:
    (
        context,
        tokens,
        start,
        end,
        rows,
        epilogue,
        parameters,
        positions,
        mask,
        observed,
        embeds,
        fetches,
        puts,
        adapter,
    ) = call
    asked = ForwardCall(
        working_set=context,
        tokens=tuple(tokens),
        start=start,
        end=end,
        rows=tuple(rows),
        epilogue=epilogue,
        parameters=tuple(as_bytes(value)[1] for value in parameters),
        positions=None if positions is None else tuple(positions),
        mask=None if mask is None else _seen(guest, mask, end - start, end),
        observed=None if observed is None else Observation(*map(tuple, observed)),
        embeds=tuple((after, _source(guest, source)) for after, source in embeds),
        fetches=tuple((parameter, _source(guest, source)) for parameter, source in fetches),
        puts=tuple(puts),
        name=ticket,
        adapter=adapter,
    )
    return guest.space.submit(asked), lambda tensors: ("tensors", [_tensor(tensor) for tensor in tensors])


def _source(guest: Guest, source: tuple[str, Any]) -> Source:
    kind, of = source
    if kind == "allowed":
        return allowed(guest.matchers.find(of), guest.space.engine.wake)
    return OutputOf(*of) if kind == "output" else Next(of, stays=kind == "read")


def _value(guest: Guest, channel: int, *, stays: bool) -> Begun:
    channels = guest.space.channels
    value, (dtype, shape) = channels.read(channel) if stays else channels.take(channel)
    return value, lambda data: ("tensors", [_tensor(HostTensor(dtype, shape, memoryview(data)))])


def _seen(guest: Guest, mask: list[bool], count: int, end: int) -> tuple[int, ...]:
    """Of each token, the places that it may see as the bits of a number."""
    if len(mask) != count * end:
        raise InvalidHandle(
            f"{guest.name} gave a mask of {len(mask)} values; {count} tokens that may see {end} places need {count * end}"
        )
    digits = bytes(48 + seen for seen in mask)
    return tuple(int(digits[first : first + end][::-1], 2) for first in range(0, len(digits), end)) if end else ()


def _tensor(tensor: HostTensor) -> tuple[tuple[int, ...], tuple[str, Any]]:
    case, code = _CASES[tensor.dtype]
    data: Any = memoryview(tensor.data).cast("B")
    return tensor.shape, (case, data.cast(code))


def _receive(guest: Guest, _: None) -> Begun:
    return guest.mailbox.messages.next(), _text


def _drain(guest: Guest, _: None) -> Begun:
    return guest.mailbox.drained(), lambda _: NOTHING


def _signal(guest: Guest, _: None) -> Begun:
    return guest.mailbox.signals.next(), _text


def _receive_file(guest: Guest, _: None) -> Begun:
    return guest.mailbox.files.next(), lambda file: ("file", guest.files.add(file))


def _synchronize(guest: Guest, queue: int) -> Begun:
    done, then = guest.level1.synchronize(queue)

    def present(result: Any) -> Value:
        then(result)
        return NOTHING

    return done, present


def _next_distribution(guest: Guest, embed: int) -> Begun:
    results, then = guest.level1.next_distribution(embed)
    return results, lambda tensors: ("distribution", then(tensors))


def _attention_mass(guest: Guest, embed: int) -> Begun:
    results, then = guest.level1.attention_mass(embed)
    return results, lambda tensors: ("masses", then(tensors))


def _message(guest: Guest, subscription: int) -> Begun:
    return guest.subscriptions.find(subscription).receive(), _text


def _fetch(guest: Guest, asked: tuple[Any, ...]) -> Begun:
    method, url, headers, body, timeout, redirects = asked
    seconds = None if timeout is None else timeout / 1e9
    request = HttpRequest(method, url, tuple(headers), body, seconds, redirects)
    return _task(guest.fetch(request)), lambda response: ("response", guest.responses.add(response))


def _child_result(guest: Guest, child: int) -> Begun:
    return _task(_ended(guest.children.find(child))), _text


async def _ended(child: Instance) -> str:
    try:
        outcome = await child.result()
    except InferletError as error:
        told = f"{error}\n{error.traceback}".rstrip()
        raise type(error)(told, error.traceback, error.cause) from None
    return json.dumps(outcome.result)


def _child_message(guest: Guest, child: int) -> Begun:
    pending = _task(guest.children.find(child).receive())
    return pending, lambda text: NOTHING if text is None else _text(text)


def _save_snapshot(guest: Guest, asked: tuple[Any, ...]) -> Begun:
    context, name, length, note = asked
    return _task(guest.snapshots.save(guest.space, context, name, length, note)), lambda _: NOTHING


def _load_snapshot(guest: Guest, asked: tuple[Any, ...]) -> Begun:
    context, name = asked
    return _task(guest.snapshots.load(guest.space, context, name)), _text


def _text(text: str) -> Value:
    return "text", text


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_task(work)


def _without_ticket(begin_it: Callable[[Guest, Any], Begun], guest: Guest, ticket: int, payload: Any) -> Begun:
    """Nothing names it later."""
    return begin_it(guest, payload)


_UNNAMED: dict[str, Callable[[Guest, Any], Begun]] = {
    "take-value": lambda guest, channel: _value(guest, channel, stays=False),
    "read-value": lambda guest, channel: _value(guest, channel, stays=True),
    "receive": _receive,
    "drain": _drain,
    "signal": _signal,
    "receive-file": _receive_file,
    "synchronize": _synchronize,
    "next-distribution": _next_distribution,
    "attention-mass": _attention_mass,
    "message": _message,
    "fetch": _fetch,
    "child-result": _child_result,
    "child-message": _child_message,
    "save-snapshot": _save_snapshot,
    "load-snapshot": _load_snapshot,
}
_KINDS: dict[str, Callable[[Guest, int, Any], Begun]] = {
    "forward": _forward,
    **{kind: partial(_without_ticket, begin_it) for kind, begin_it in _UNNAMED.items()},
}


def told(error: BaseException) -> PieError:
    """An error of ours as it is; another one as the fault that it is."""
    if isinstance(error, PieError):
        return error
    return PieError(f"pie-edge failed: {type(error).__name__}: {error}; please report it")
