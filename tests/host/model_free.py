"""An engine without a model, for tests of the host: the next token is a function of the context's tokens."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pie_edge.control.facts import Abilities
from pie_edge.control.queue import ForwardCall, HostTensor
from pie_edge.control.usage import Usage
from pie_edge.errors import ContextOverflow, EpilogueError, InferletCancelled, InvalidHandle, OutOfPages, PieError
from pie_edge.tokenizer.formats import Formats

VOCABULARY = 1000
CONTEXT = 4096
PAGE = 16


@dataclass(frozen=True)
class Facts:
    name: str = "model-free"
    architecture: str = "none"
    vocabulary: int = VOCABULARY
    context: int = CONTEXT
    page_size: int = PAGE
    licence: str = "Apache-2.0"
    description: str = "counts"
    version: str = "1"
    hidden: int = 4
    pooling: str = "mean"
    sampling: tuple[tuple[str, float], ...] = (("temperature", 0.6), ("top_k", 20.0))


def next_token(tokens: list[int], seed: int = 0) -> int:
    """Never a stop token (0 to 2)."""
    value = 17
    for token in tokens:
        value = (value * 31 + token) % 1_000_003
    return 3 + (value + seed) % (VOCABULARY - 3)


def greedy(tokens: list[int], count: int, seed: int = 0) -> list[int]:
    """What a greedy program makes of ``tokens``."""
    made: list[int] = []
    for _ in range(count):
        made.append(next_token(tokens + made, seed))
    return made


@dataclass(eq=False)
class Space:
    """``delay`` is seconds until a pass is done: None is at once, below 0 is never."""

    engine: Engine
    name: str
    seed: int
    usage: Usage = field(default_factory=Usage)
    closed: bool = False

    def __post_init__(self) -> None:
        self.sets: dict[int, tuple[int, dict[int, int]]] = {}  # pages, position → token
        self.numbers = 1
        self.pending: list[asyncio.Future[Any]] = []

    def create_working_set(self, tokens: int, seed: int | None = None) -> int:
        if tokens > CONTEXT:
            raise ContextOverflow(f"{self.name} asked for a context of {tokens} tokens; the model's limit is {CONTEXT}")
        return self._add(-(-tokens // PAGE), {})

    def _add(self, pages: int, held: dict[int, int]) -> int:
        self._take(pages)
        number, self.numbers = self.numbers, self.numbers + 1
        self.sets[number] = (pages, held)
        return number

    def _take(self, pages: int) -> None:
        if pages > self.engine.free:
            raise OutOfPages(f"{self.name} asked for {pages} KV pages, {self.engine.free} are free; release a context")
        self.engine.free -= pages
        self.engine.lowest = min(self.engine.lowest, self.engine.free)

    def _find(self, handle: int) -> tuple[int, dict[int, int]]:
        if handle not in self.sets:
            raise InvalidHandle(f"{self.name} has no working set {handle}")
        return self.sets[handle]

    def reserve(self, handle: int, pages: int) -> None:
        had, held = self._find(handle)
        self._take(pages)
        self.sets[handle] = (had + pages, held)

    def capacity(self, handle: int) -> int:
        return self._find(handle)[0] * PAGE

    def fork(self, handle: int, seed: int | None = None) -> int:
        pages, held = self._find(handle)
        return self._add(pages, dict(held))

    def discard(self, handle: int, first: int, count: int) -> None:
        pages, held = self._find(handle)
        if first + count > pages:
            raise InvalidHandle(f"{self.name} discards pages {first} to {first + count} of {pages}")
        for position in range(first * PAGE, (first + count) * PAGE):
            held.pop(position, None)

    def drop(self, handle: int) -> None:
        self.engine.free += self._find(handle)[0]
        del self.sets[handle]

    def submit(self, call: ForwardCall) -> asyncio.Future[tuple[HostTensor, ...]]:
        pages, held = self._find(call.working_set)
        if call.end > pages * PAGE:
            raise ContextOverflow(f"{self.name} writes up to {call.end}; there is room for {pages * PAGE}")
        if call.end - call.start != len(call.tokens):
            raise InvalidHandle(f"{self.name} embedded {len(call.tokens)} tokens for {call.start} to {call.end}")
        self.engine.calls.append(call)
        held.update(zip(range(call.start, call.end), call.tokens, strict=True))
        answer = self._answer(call, [held[place] for place in sorted(held) if place < call.end])
        future: asyncio.Future[tuple[HostTensor, ...]] = asyncio.get_running_loop().create_future()
        delay = self.engine.delay
        if self.engine.failure is not None:
            future.set_exception(self.engine.failure)
        elif delay is None:
            future.set_result(answer)
        elif delay >= 0:
            asyncio.get_running_loop().call_later(delay, _settle, future, answer)
        self.pending.append(future)
        self.usage.passes += 1
        self.usage.forwarded_tokens += len(call.tokens)
        self.usage.read_rows += len(call.rows)
        return future

    def forget(self, name: int) -> None: ...

    def _answer(self, call: ForwardCall, context: list[int]) -> tuple[HostTensor, ...]:
        if call.epilogue is None:
            return ()
        wire = json.loads(call.epilogue)
        outputs = [(output, 0) if isinstance(output, int) else tuple(output) for output in wire["outputs"]]
        return tuple(self._value(wire["nodes"][node], result, call, context) for node, result in outputs)

    def _value(self, node: dict[str, Any], result: int, call: ForwardCall, context: list[int]) -> HostTensor:
        ends = [len(context) - len(call.tokens) + row + 1 for row in call.rows]
        best = [next_token(context[:end], self.engine.shift) for end in ends]
        match node["op"]:
            case "reduce_argmax":
                return tensor("u32", best if len(best) > 1 else best[0])
            case "logits":
                rows = [[float(token == one) for token in range(VOCABULARY)] for one in best]
                return tensor("f32", rows if len(rows) > 1 else rows[0])
            case "top_k":
                count = node["attrs"]["k"]
                return (
                    tensor("f32", [1.0 / (i + 1) for i in range(count)]) if not result else tensor("u32", best * count)
                )
            case "param":
                kind = node["attrs"]["dtype"]
                values = memoryview(call.parameters[node["attrs"]["index"]]).cast(_CODES[kind]).tolist()
                return tensor(kind, values if node["attrs"]["shape"] else values[0])
            case "reduce_max":
                return tensor("f32", 0.5)
            case "eq":
                return tensor("bool", [True, False])
        raise EpilogueError(f"{node['line']}: the model-free engine can't compute {node['op']}")

    def close(self) -> None:
        self.closed = True
        for pages, _ in self.sets.values():
            self.engine.free += pages
        self.sets.clear()
        for future in self.pending:
            if not future.done():
                future.set_exception(InferletCancelled(f"{self.name} ended before its pass ran"))
                future.exception()
        self.engine.spaces.discard(self)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


_CODES: dict[str, Any] = {"f32": "f", "i32": "i", "u32": "I", "bool": "B"}


def tensor(dtype: str, value: Any) -> HostTensor:
    shape: list[int] = []
    inner = value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0]
    flat = [value]
    for _ in shape:
        flat = [item for row in flat for item in row]
    return HostTensor(dtype, tuple(shape), memoryview(array(_CODES[dtype], flat).tobytes()))


class Engine:
    def __init__(self, pages: int = 100_000) -> None:
        self.facts = Facts()
        self.abilities = Abilities(self.facts.context)
        self.free = self.lowest = self.pages = pages
        self.failure: PieError | None = None
        self.delay: float | None = 0.0
        self.shift = 0
        self.calls: list[ForwardCall] = []
        self.spaces: set[Space] = set()

    def open_space(self, name: str, seed: int, parent: Space | None = None) -> Space:
        space = Space(self, name, seed)
        self.spaces.add(space)
        return space


class Kinds:
    """Stands in for a tokenizer: a token is a byte and three; 0 to 2 are control tokens."""

    bos, eos = 1, 2
    stop_tokens = frozenset({2})
    size = VOCABULARY
    strips_space = strips_after_markers = False

    @property
    def control_tokens(self) -> dict[str, int]:
        return {"<|one|>": 1, "<|two|>": 2}

    def prefix(self) -> list[int]:
        return [self.bos]

    def suffix(self) -> list[int]:
        return [self.eos]

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return [byte + 3 for byte in text.encode()]

    def token_bytes(self, token: int) -> bytes:
        return bytes([token - 3]) if 3 <= token < 259 else b"?"

    def kind(self, token: int) -> int:
        from pie_edge.tokenizer.vocabulary import Kind

        if not 0 <= token < VOCABULARY:
            raise InvalidHandle(f"token {token} is outside the model's vocabulary of 0 to {VOCABULARY - 1}")
        return Kind.CONTROL if token < 3 else Kind.NORMAL

    def decode(self, ids: list[int], *, special: bool = False, continued: bool = False) -> str:
        for token in ids:
            self.kind(token)
        return b"".join(self.token_bytes(token) for token in ids if token > 2).decode("utf-8", "replace")


class Template:
    def __init__(self, tokenizer: Kinds) -> None:
        self._encode = tokenizer.encode

    def prefix(self) -> list[int]:
        return [1]

    formats = Formats("hermes", "think")

    def preamble(self, thinking: bool | None = None) -> list[int]:
        return [] if thinking is None else self._encode(f"<t{thinking:d}>")

    def system(self, text: str, thinking: bool | None = None) -> list[int]:
        return [*self.preamble(thinking), *self._encode(f"<s>{text}\n")]

    def equip(self, tools: Sequence[Any], system: str | None = None, thinking: bool | None = None) -> list[int]:
        return [*self.preamble(thinking), *self._encode(f"<f>{json.dumps([tools, system])}\n")]

    def answer(self, answers: Sequence[Any]) -> list[int]:
        return self._encode(f"\n<r>{json.dumps(answers)}\n")

    def conversation(
        self, messages: Sequence[Any], tools: Sequence[Any] | None, thinking: bool | None, cue: bool
    ) -> list[int]:
        return [1, *self._encode(json.dumps([messages, tools, thinking, cue]))]

    def opens_reasoning(self, thinking: bool | None = None) -> bool:
        return bool(thinking)

    def user(self, text: str) -> list[int]:
        return self._encode(f"<u>{text}\n")

    def assistant(self, text: str) -> list[int]:
        return self._encode(f"<a>{text}\n")

    def cue(self, thinking: bool | None = None) -> list[int]:
        return [*self._encode("<a>"), *self.preamble(thinking)]

    def seal(self) -> list[int]:
        return self._encode("\n")
