"""Snapshots of the SDK on a played host: what is kept, and a context that goes on from it without forwarding it again."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest

from tests.support.sdk import PlayedHost, scalar

from inferlet import Context, _host, chat, model, snapshots  # isort: skip
from inferlet._host import Forward, LoadSnapshot, Outcome, Request, SaveSnapshot  # isort: skip
from inferlet._loop import Loop  # isort: skip
from inferlet.errors import ResourceError, UsageError  # isort: skip


class Keeping(PlayedHost):
    """Keeps notes and lengths; a pass answers with token 9."""

    def __init__(self) -> None:
        super().__init__(lambda call: scalar(9) if call.epilogue else [])
        self.kept: dict[str, tuple[str, int]] = {}

    def seed(self) -> int:
        return 1

    def chat_prefix(self) -> list[int]:
        return [1]

    def chat_stop_tokens(self) -> list[int]:
        return []

    def chat_turn(self, role: str, text: str, thinking: bool | None) -> list[int]:
        return [20, 21]

    def chat_preamble(self, thinking: bool | None) -> list[int]:
        return []

    def chat_cue(self, thinking: bool | None) -> list[int]:
        return [22]

    def chat_seal(self) -> list[int]:
        return [23]

    def decoder(self, special: bool, continued: bool) -> Any:
        return Numbers()

    def list_snapshots(self) -> list[str]:
        return sorted(self.kept)

    def delete_snapshot(self, name: str) -> None:
        del self.kept[name]

    def wait(self, submissions: Sequence[tuple[int, Request]], timeout: int | None) -> list[tuple[int, Outcome]]:
        found = []
        for ticket, request in submissions:
            if isinstance(request, SaveSnapshot):
                self.log.append(f"save {request.context.id} {request.length}")
                self.kept[request.name] = (request.note, request.length)
                found.append((ticket, ""))
            elif isinstance(request, LoadSnapshot):
                found.append((ticket, self.kept[request.name][0]))
        return found + super().wait([one for one in submissions if isinstance(one[1], Forward)], timeout)


class Numbers:
    def push(self, tokens: list[int]) -> str:
        return f"{tokens[0]} "

    def flush(self) -> str:
        return ""


@pytest.fixture
def host() -> Iterator[Keeping]:
    before = _host._installed
    played: Any = Keeping()
    _host.install(played)
    for cached in (model.facts, chat._prefix, chat._stop_tokens):
        cached.cache_clear()
    yield played
    _host._installed = before
    for cached in (model.facts, chat._prefix, chat._stop_tokens):
        cached.cache_clear()


def in_loop(main: Coroutine[Any, Any, Any]) -> Any:
    loop = Loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def test_a_context_goes_on_where_it_was_saved(host: Keeping) -> None:
    async def main() -> Any:
        context = Context()
        context.fill_user("x")
        await context.generate_until(max_tokens=2)
        await context.save("mine")
        again = await Context.load("mine")
        tokens = again.tokens
        await again.generate_until(max_tokens=1)
        again.fill_user("y")
        return tokens, again.tokens

    before, after = in_loop(main())
    assert before == [1, 20, 21, 22, 9, 9]
    # The last token wasn't forwarded, because nobody had asked for its logits; the rest isn't forwarded again.
    assert host.kept["mine"][1] == 5
    assert [line for line in host.log if line.startswith("forward")][-1] == "forward 2 5-6"
    assert after[len(before) :] == [9, 23, 20, 21]


def test_what_was_not_forwarded_yet_is_before_it_is_kept(host: Keeping) -> None:
    async def main() -> None:
        context = Context()
        context.fill([5, 6, 7])
        await context.save("mine")

    in_loop(main())
    assert [line for line in host.log if "-" in line or "save" in line] == ["forward 1 0-3", "save 1 3"]


def test_names_are_listed_and_deleted(host: Keeping) -> None:
    async def main() -> None:
        for name in ("b", "a"):
            await Context().save(name)

    in_loop(main())
    assert snapshots.names() == ["a", "b"]
    snapshots.delete("a")
    assert snapshots.names() == ["b"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 129, 5])
def test_a_name_that_is_none_is_refused(host: Keeping, name: Any) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="can't name a snapshot"):
            await Context().save(name)
        with pytest.raises(UsageError, match="can't name a snapshot"):
            await Context.load(name)

    in_loop(main())


def test_a_snapshot_of_another_version_is_refused(host: Keeping) -> None:
    host.kept["old"] = (json.dumps({"version": 99}), 3)

    async def main() -> None:
        with pytest.raises(ResourceError, match="another version of the SDK"):
            await Context.load("old")

    in_loop(main())
