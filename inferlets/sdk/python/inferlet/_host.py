"""The seam between the SDK and whoever carries it out: the Wasm host in a component, a fake in a unit test.

``install`` is called once, before anything else of the SDK is used. Every call may raise one of ``inferlet.errors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inferlet._events import Event
from inferlet._matching import GrammarHandle, GrammarHost, MatcherHandle, MatcherState
from inferlet._requests import (
    AttentionMass,
    Candidates,
    ChannelHandle,
    ChannelValue,
    ChildMessage,
    ChildResult,
    Drain,
    Elements,
    Fetch,
    File,
    Forward,
    LoadSnapshot,
    Masses,
    Message,
    NextDistribution,
    NextSignal,
    Outcome,
    Receive,
    ReceiveFile,
    Request,
    Response,
    SaveSnapshot,
    Source,
    Synchronize,
    Tensor,
    WorkingSetHandle,
)

__all__ = [
    "AttentionMass",
    "Candidates",
    "ChannelHandle",
    "ChannelValue",
    "ChildMessage",
    "ChildResult",
    "Description",
    "Drain",
    "Elements",
    "Facts",
    "Fetch",
    "File",
    "Forward",
    "GrammarHandle",
    "Host",
    "LoadSnapshot",
    "Masses",
    "MatcherHandle",
    "MatcherState",
    "Message",
    "NextDistribution",
    "NextSignal",
    "Outcome",
    "Receive",
    "ReceiveFile",
    "Request",
    "Response",
    "SaveSnapshot",
    "Slice",
    "Source",
    "Synchronize",
    "Tensor",
    "Used",
    "WorkingSetHandle",
    "host",
    "install",
]


@dataclass(frozen=True, slots=True)
class Facts:
    """What an inferlet may know of its model."""

    name: str
    architecture: str
    description: str
    licence: str
    vocabulary: int
    context: int
    page_size: int
    bos: int | None
    eos: int | None
    recurrent: bool
    reversible: int
    hidden: int = 0
    pooling: str | None = None
    suffix: Sequence[int] = ()
    sampling: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens that this program's passes have taken so far: computed; not computed, since a prefix shared with others had them;
    computed again, since such a prefix had been evicted."""

    forwarded: int
    cached: int
    recomputed: int


@dataclass(frozen=True, slots=True)
class Description:
    """A model, as level 1 describes it. ``prompt_template`` is Jinja; empty where the model has none."""

    name: str
    traits: tuple[str, ...]
    description: str
    version: str
    licence: str
    prompt_template: str


Slice = tuple[Sequence[int], int, int]
"""``(pages, first, last)``: these tokens of the pages laid one after the other."""


class Decoder(Protocol):
    def push(self, tokens: list[int]) -> str: ...
    def flush(self) -> str: ...


class AnswerDecoder(Protocol):
    def push(self, tokens: list[int]) -> list[Event]: ...
    def flush(self) -> list[Event]: ...


class QueueHandle(Protocol):
    id: int

    def set_priority(self, priority: int) -> None: ...


class SubscriptionHandle(Protocol):
    id: int

    def close(self) -> None: ...


class ChildHandle(Protocol):
    id: int

    def instance_id(self) -> str: ...
    def send(self, text: str) -> None: ...
    def cancel(self) -> None: ...


class PagesHost(Protocol):
    """Level 1, by trait."""

    def list_models(self) -> list[str]: ...
    def models_with_traits(self, traits: Sequence[str]) -> list[str]: ...
    def describe_model(self, name: str) -> Description: ...
    def vocabulary(self, first: int, count: int) -> tuple[list[int], bytes]:
        """Lengths of the tokens' spellings in bytes, and the bytes. It may be fewer than ``count``."""

    def create_queue(self) -> QueueHandle: ...
    def alloc_kv_pages(self, count: int) -> list[int]: ...
    def free_kv_pages(self, pages: Sequence[int]) -> None: ...
    def copy_kv(self, queue: int, source: Slice, target: Slice) -> None: ...
    def export_kv_pages(self, pages: Sequence[int], name: str) -> None: ...
    def import_kv_pages(self, name: str) -> list[int]: ...
    def withdraw_kv_pages(self, name: str) -> None: ...
    def alloc_embeds(self, count: int) -> list[int]: ...
    def free_embeds(self, embeds: Sequence[int]) -> None: ...
    def forward_pages(
        self,
        queue: int,
        context: Sequence[Slice],
        inputs: Sequence[int],
        writes: Sequence[Slice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
    ) -> None: ...
    def forward_with_adapter(
        self,
        queue: int,
        adapter: str,
        context: Sequence[Slice],
        inputs: Sequence[int],
        writes: Sequence[Slice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
    ) -> None: ...
    def mask_kv_page(self, queue: int, page: int, hidden: Sequence[bool]) -> None: ...
    def embed_text(self, embeds: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> None: ...
    def embed_image(self, embeds: Sequence[int], image: bytes, position: int) -> None: ...
    def image_embeds(self, width: int, height: int) -> int: ...
    def attention_layers(self) -> int: ...
    def forward_observed(
        self,
        queue: int,
        layers: Sequence[int],
        context: Sequence[Slice],
        inputs: Sequence[int],
        writes: Sequence[Slice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
    ) -> None: ...


class OutsideHost(Protocol):
    """Beside the model."""

    def broadcast(self, topic: str, text: str) -> int: ...
    def subscribe(self, topic: str) -> SubscriptionHandle: ...
    def launch(
        self,
        kind: str,
        program: str,
        input: str,
        name: str | None,
        seed: int | None,
        time: int | None,
        memory: int | None,
        detached: bool,
    ) -> ChildHandle:
        """``kind`` is ``text`` or ``path``; ``time`` in nanoseconds, ``memory`` in bytes."""

    def store_get(self, key: str) -> str | None: ...
    def store_set(self, key: str, value: str) -> None: ...
    def store_delete(self, key: str) -> bool: ...
    def store_exists(self, key: str) -> bool: ...
    def store_keys(self, prefix: str, after: str | None, count: int) -> list[str]: ...
    def list_snapshots(self) -> list[str]: ...
    def delete_snapshot(self, name: str) -> None: ...


class Host(PagesHost, OutsideHost, GrammarHost, Protocol):
    """The interfaces of the WIT world that an inferlet is written against."""

    def version(self) -> str: ...
    def instance_id(self) -> str: ...
    def seed(self) -> int: ...
    def print(self, stream: str, text: str) -> None:
        """``stream`` is ``output`` or ``error``."""

    def log(self, level: str, message: str) -> None: ...
    def find_module(self, name: str) -> tuple[str, str] | None:
        """``(path, text)``."""

    def usage(self) -> Used: ...
    def facts(self) -> Facts: ...
    def adapters(self) -> list[str]: ...
    def encode(self, text: str, special: bool) -> list[int]: ...
    def decode(self, tokens: list[int], special: bool, continued: bool) -> str: ...
    def decoder(self, special: bool, continued: bool) -> Decoder: ...

    def chat_available(self) -> bool: ...
    def chat_prefix(self) -> list[int]: ...
    def chat_preamble(self, thinking: bool | None) -> list[int]: ...
    def chat_turn(self, role: str, text: str, thinking: bool | None) -> list[int]: ...
    def chat_conversation(self, messages: str, tools: str | None, thinking: bool | None, cue: bool) -> list[int]: ...
    def chat_cue(self, thinking: bool | None) -> list[int]: ...
    def chat_seal(self) -> list[int]: ...
    def chat_stop_tokens(self) -> list[int]: ...
    def tools_equip(self, tools: str, system: str | None, thinking: bool | None) -> list[int]: ...
    def tools_answer(self, answers: str) -> list[int]: ...
    def formats(self) -> tuple[str, str]:
        """Of calls, and of reasoning."""

    def opens_reasoning(self, thinking: bool | None) -> bool: ...
    def answer_decoder(self, calls: bool, opened: bool, continued: bool, tools: str | None) -> AnswerDecoder: ...

    def create_working_set(self, tokens: int, seed: int | None = None) -> WorkingSetHandle: ...
    def find_working_set(self, key: str) -> WorkingSetHandle | None: ...
    def remove_working_set(self, key: str) -> bool: ...
    def create_channel(self, element: str, shape: Sequence[int], capacity: int) -> ChannelHandle:
        """``element`` is ``floats``, ``signed`` or ``unsigned``."""

    def wait(self, submissions: Sequence[tuple[int, Request]], timeout: int | None) -> list[tuple[int, Outcome]]:
        """Starts the submissions, sleeps for at most ``timeout`` nanoseconds, takes what is complete."""

    def give_up(self, ticket: int) -> None:
        """Nobody waits for an outstanding request any more."""

    def send(self, text: str) -> None: ...
    def is_full(self) -> bool: ...
    def send_file(self, name: str, part: bytes, last: bool) -> None: ...


_installed: Host | None = None


def install(host: Host) -> None:
    global _installed
    _installed = host


def host() -> Host:
    if _installed is None:
        raise RuntimeError("no host: this module works inside of pie-edge; start the program with `pie-edge run FILE`")
    return _installed
