"""The instance itself, its client, the model, and contexts in its cache."""

from __future__ import annotations

from typing import Any

from pie_edge import __version__
from pie_edge.errors import InferletInvalid, ResourceError
from pie_edge.host.guest import Guest
from pie_edge.host.interfaces import CHANNEL, DECODER, FILE, LONGEST_READ, WORKING_SET, Interface
from pie_edge.host.interfaces.encoding import Tokens, encoded
from pie_edge.host.requests import ELEMENTS, as_bytes
from pie_edge.tokenizer import Detokenizer

_MOST_SPELLINGS = 4096
_LONGEST_KEY = 256


def _find_module(guest: Guest, name: str) -> tuple[str, str] | None:
    try:
        return guest.source.find_module(name, guest.limits.source)
    except InferletInvalid as error:
        guest.on_log(f"error: {error.message}\n")
        return None


def _log(guest: Guest, level: str, message: str) -> None:
    guest.on_log(f"{level}: {message}\n")


def _usage(guest: Guest) -> tuple[int, ...]:
    usage = guest.space.usage
    return usage.forwarded_tokens, usage.cached_tokens, usage.recomputed_tokens


def _facts(guest: Guest) -> tuple[Any, ...]:
    facts, abilities, tokenizer = guest.model.facts, guest.model.abilities, guest.model.tokenizer
    return (
        facts.name,
        facts.architecture,
        facts.description,
        facts.licence,
        facts.vocabulary,
        facts.context,
        facts.page_size,
        tokenizer.bos,
        tokenizer.eos,
        abilities.recurrent,
        facts.context if abilities.reversible is None else abilities.reversible,
        facts.hidden,
        facts.pooling or None,
        tokenizer.suffix(),
        list(facts.sampling),
    )


def _encode(guest: Guest, text: str, special: bool) -> Tokens:
    return encoded(guest, text, lambda: guest.model.tokenizer.encode(text, special=special))


def _decode(guest: Guest, tokens: list[int], special: bool, continued: bool) -> str:
    return guest.model.tokenizer.decode(tokens, special=special, continued=continued)


def _new_decoder(guest: Guest, special: bool, continued: bool) -> int:
    return guest.decoders.add(Detokenizer(guest.model.tokenizer, special=special, continued=continued))


def _push(guest: Guest, decoder: int, tokens: list[int]) -> str:
    return "".join(map(guest.decoders.find(decoder).push, tokens))


def _flush(guest: Guest, decoder: int) -> str:
    return guest.decoders.find(decoder).flush()


def _checked_key(guest: Guest, key: str) -> str:
    if not 0 < len(key) <= _LONGEST_KEY:
        raise ResourceError(
            f"{guest.name} adds a working set under a key of {len(key):,} characters; give it 1 to {_LONGEST_KEY}"
        )
    return key


def _new_channel(guest: Guest, element: str, shape: list[int], capacity: int) -> int:
    guest.space.check_open()
    return guest.space.channels.create(shape, ELEMENTS[element], capacity)


def _vocabulary(guest: Guest, first: int, count: int) -> tuple[list[int], bytes]:
    tokenizer = guest.model.tokenizer
    last = min(first + min(count, _MOST_SPELLINGS), tokenizer.size)
    spelled = [tokenizer.token_bytes(token) for token in range(first, last)]
    return [len(one) for one in spelled], b"".join(spelled)


def _read_file(guest: Guest, file: int, offset: int, count: int) -> bytes:
    return guest.files.find(file).data[offset : offset + min(count, LONGEST_READ)]


CORE: dict[str, Interface] = {
    "types": ({}, {}),
    "runtime": (
        {},
        {
            "version": lambda guest: __version__,
            "instance-id": lambda guest: guest.id,
            "seed": lambda guest: guest.space.seed,
            "print": lambda guest, to, text: guest.on_text(text) if to == "output" else guest.on_log(text),
            "log": _log,
            "get-usage": _usage,
            "find-module": _find_module,
        },
    ),
    "model": (
        {"decoder": (DECODER, lambda guest, decoder: guest.decoders.drop(decoder))},
        {
            "get-facts": _facts,
            "adapters": lambda guest: list(guest.model.abilities.adapters),
            "encode": _encode,
            "decode": _decode,
            "vocabulary": _vocabulary,
            "[constructor]decoder": _new_decoder,
            "[method]decoder.push": _push,
            "[method]decoder.flush": _flush,
        },
    ),
    "forward": (
        {
            "working-set": (WORKING_SET, lambda guest, handle: guest.space.drop(handle)),
            "channel": (CHANNEL, lambda guest, channel: guest.space.channels.drop(channel)),
        },
        {
            "[static]working-set.create": lambda guest, tokens, seed: guest.space.create_working_set(tokens, seed),
            "[method]working-set.id": lambda guest, handle: handle,
            "[method]working-set.reserve": lambda guest, handle, pages: guest.space.reserve(handle, pages),
            "[method]working-set.capacity": lambda guest, handle: guest.space.capacity(handle),
            "[method]working-set.fork": lambda guest, handle, seed: guest.space.fork(handle, seed),
            "[method]working-set.slice": lambda guest, handle, first, count, seed: guest.space.slice(
                handle, first, count, seed
            ),
            "[method]working-set.hide": lambda guest, handle, start, hidden: guest.space.hide(
                handle, start, tuple(hidden)
            ),
            "[method]working-set.add": lambda guest, handle, key, time: guest.space.share(
                handle, _checked_key(guest, key), None if time is None else time / 1e9
            ),
            "[static]working-set.find": lambda guest, key: guest.space.adopt(key),
            "[static]working-set.remove": lambda guest, key: guest.space.unshare(key),
            "[method]working-set.discard": lambda guest, handle, first, count: guest.space.discard(
                handle, first, count
            ),
            "[static]channel.create": _new_channel,
            "[method]channel.id": lambda guest, channel: channel,
            "[method]channel.put": lambda guest, channel, value: guest.space.channels.put(channel, *as_bytes(value)),
            "[method]channel.set": lambda guest, channel, value: guest.space.channels.set(channel, *as_bytes(value)),
        },
    ),
    "session": (
        {"file": (FILE, lambda guest, file: guest.files.drop(file))},
        {
            "send": lambda guest, text: guest.mailbox.send(text),
            "is-full": lambda guest: guest.mailbox.full,
            "send-file": lambda guest, name, part, last: guest.mailbox.send_file(name, bytes(part), last),
            "[method]file.name": lambda guest, file: guest.files.find(file).name,
            "[method]file.size": lambda guest, file: len(guest.files.find(file).data),
            "[method]file.read": _read_file,
        },
    ),
}
