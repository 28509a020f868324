"""What would end a program where it can't be caught is refused at its line: values of other types, and too much at once."""

from __future__ import annotations

import pytest

from tests.host.tiny_hosting import run_tiny

HEAD = """
from inferlet import http, messaging, model, runtime, store, tokenizer, traits
from inferlet.eta import Channel, Geometry, WorkingSet
"""
WRONG = {
    "a key": ("store.get(7)", "TypeError: get: key takes text"),
    "a value": ("store.set('k', None)", "TypeError: set: value takes text"),
    "a lone surrogate": ("store.exists('\\ud800')", "ValueError: exists: key was given text with a lone surrogate"),
    "a topic": ("messaging.subscribe(1.5)", "TypeError: create: topic takes text"),
    "a message": ("messaging.broadcast('t', b'x')", "TypeError: broadcast: text takes text"),
    "an export's name": ("traits.import_kvpage([1])", "TypeError: import-kv-pages: name takes text"),
    "an image": ("traits.embed_img(traits.alloc_emb(1), 'x', 0)", "TypeError: embed-image: image takes bytes"),
    "a seed": ("WorkingSet(4, seed=1.5)", "TypeError: create: seed takes a whole number"),
    "a seed below 0": ("WorkingSet(4, seed=-1)", "UsageError: create: seed is -1"),
    "a child's memory": ("runtime.launch('x', {}, memory=1.5)", "TypeError: options: memory takes a whole number"),
    "a child's source": ("runtime.launch('\\ud800', {})", "ValueError: launch was given text"),
    "a URL": ("await http.get(7)", "TypeError: http: url takes text"),
    "redirects": ("await http.get('http://x/', redirects=1.5)", "UsageError: 1.5 redirects"),
    "a geometry": ("Geometry(-1, 0)", "InvalidHandle: a geometry goes from -1 to 0"),
    "a large body": (
        "await http.post('http://x/', body=bytes(20 << 20))",
        "ResourceError: http: body has 20,971,520 bytes",
    ),
    "text in a channel": ("Channel((), 'f32').put('5')", "EpilogueError: main.py:"),
    "a channel of text": ("Channel.from_('x')", "EpilogueError: main.py:"),
    "many tokens": ("model.decode([5] * 4_000_000)", "ResourceError: decode: tokens has 4,000,000 entries"),
    "many pushed tokens": ("tokenizer.Decoder().push([5] * 3_000_000)", "ResourceError: push: tokens"),
    "many places": ("WorkingSet(16).hide(0, [True] * 3_000_000)", "ResourceError: hide: hidden has 3,000,000"),
}


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """All of them in one program, which goes on after each."""
    tries = "".join(
        f"    try:\n        {asked}\n        found[{name!r}] = 'accepted'\n"
        f"    except BaseException as error:\n        found[{name!r}] = f'{{type(error).__name__}}: {{error}}'\n"
        for name, (asked, _) in WRONG.items()
    )

    ended = run_tiny(f"{HEAD}async def main(input):\n    found = {{}}\n{tries}    return found")
    assert ended.error is None, ended.traceback or ended.error
    return dict(ended.result)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_an_exception_at_its_line(told: dict[str, str], case: str) -> None:
    assert told[case].startswith(WRONG[case][1])
