"""The SDK outside of a component: importable, on a host that the test plays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SDK = str(Path(__file__).resolve().parents[2] / "inferlets" / "sdk" / "python")
if SDK not in sys.path:
    sys.path.insert(0, SDK)

from inferlet import _host, model  # noqa: E402
from inferlet._host import Facts, Forward, Outcome, Request, Tensor  # noqa: E402


class Handle:
    def __init__(self, number: int, host: PlayedHost) -> None:
        self.id = number
        self._host = host

    def reserve(self, pages: int) -> None:
        self._host.log.append(f"reserve {self.id} {pages}")

    def capacity(self) -> int:
        return 0

    def fork(self, seed: int | None = None) -> Handle:
        self._host.log.append(f"fork {self.id}")
        return Handle(100 + self.id, self._host)

    def discard(self, first_page: int, count: int) -> None:
        self._host.log.append(f"discard {self.id} {first_page} {count}")

    def close(self) -> None:
        self._host.log.append(f"close {self.id}")


class PlayedHost:
    """Answers every forward pass with ``answer``; ``log`` says what was called, in order."""

    def __init__(self, answer: Callable[[Forward], Outcome]) -> None:
        self.answer = answer
        self.log: list[str] = []
        self.waits: list[tuple[int, int | None]] = []
        self.text = ""
        self._ready: list[tuple[int, Outcome]] = []

    def create_working_set(self, tokens: int, seed: int | None = None) -> Handle:
        self.log.append(f"create {tokens}")
        return Handle(sum(line.startswith("create") for line in self.log), self)

    def facts(self) -> Facts:
        return Facts(
            "played",
            "none",
            "",
            "",
            vocabulary=100,
            context=64,
            page_size=16,
            bos=1,
            eos=2,
            recurrent=False,
            reversible=64,
        )

    def print(self, stream: str, text: str) -> None:
        self.text += text

    def wait(self, submissions: Sequence[tuple[int, Request]], timeout: int | None) -> list[tuple[int, Outcome]]:
        self.waits.append((len(submissions), timeout))
        for ticket, request in submissions:
            assert isinstance(request, Forward)
            self.log.append(f"forward {request.context.id} {request.start}-{request.end}")
            self._ready.append((ticket, self.answer(request)))
        if timeout == 0:
            return []
        ready, self._ready = self._ready, []
        return ready

    def give_up(self, ticket: int) -> None:
        self._ready = [one for one in self._ready if one[0] != ticket]


def install(answer: Callable[[Forward], Outcome]) -> PlayedHost:
    host: Any = PlayedHost(answer)
    _host.install(host)
    model.facts.cache_clear()
    return host  # type: ignore[no-any-return]


def scalar(value: Any) -> list[Tensor]:
    return [Tensor([], [value])]
