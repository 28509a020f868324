"""Channels: an inferlet's queues of small values that go from pass to pass on the device, and to and from the inferlet.

What a call takes and puts is settled when it is submitted: a value is a cell that an earlier call will have written, or
that the host wrote. So channels are in the order of the program whatever runs first, nothing waits for a later call, and
nobody can wait for ever.
"""

from __future__ import annotations

from asyncio import Future
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from pie_edge.control.cells import Cell, Taken, Token
from pie_edge.control.queue import ForwardCall, OutputOf, Source, Work
from pie_edge.errors import EpilogueError, InvalidHandle, PieError, ResourceError
from pie_edge.program.node_types import Element, TensorType
from pie_edge.sampling.epilogue import MAX_EMBEDDED, could_be_tokens

MAX_CHANNELS = 1024
MAX_ENTRIES = 4096
"""Of one value."""
MAX_ROOM = 65536
"""Entries of all values that a channel has room for."""


@dataclass(slots=True, eq=False)
class Channel:
    """``values`` are those that nobody has taken, oldest first; calls may not have computed them yet."""

    type: TensorType
    capacity: int
    values: deque[Cell] = field(default_factory=deque)

    def cell(self, dtype: str, data: bytes, who: str) -> Cell:
        """What the host gives. Raises EpilogueError for anything but a value of its type."""
        cell = Cell(self.type, prod(self.type.shape))
        if dtype != self.type.dtype or len(data) != 4 * cell.size:
            raise EpilogueError(
                f"{who} puts {len(data) // (1 if dtype == 'bool' else 4)} entries of {dtype} into a channel of {self.type}; give "
                f"{cell.size} of {self.type.dtype}"
            )
        cell.set(data)
        return cell


class Channels:
    """Those of one space, by number, and the calls whose outputs can be named. ``who`` is for messages."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._channels: dict[int, Channel] = {}
        self._calls: dict[int, Work | PieError] = {}
        self._last = 0

    def create(self, shape: Sequence[int], dtype: str, capacity: int) -> int:
        """Room for ``capacity`` values; ``dtype`` is f32, i32 or u32. Raises ResourceError for more than is allowed."""
        tensor = TensorType(Element(dtype), tuple(shape))
        entries = prod(tensor.shape)
        if not 1 <= entries <= MAX_ENTRIES or len(tensor.shape) > 4:
            raise ResourceError(
                f"{self._who} makes a channel of {tensor}; a value has 1 to {MAX_ENTRIES:,} entries on at most 4 axes"
            )
        if capacity < 1 or capacity * entries > MAX_ROOM:
            raise ResourceError(
                f"{self._who} makes a channel with room for {capacity:,} values of {tensor}; there is room for at least 1, and "
                f"for {MAX_ROOM:,} entries in all"
            )
        if len(self._channels) >= MAX_CHANNELS:
            raise ResourceError(
                f"{self._who} has {MAX_CHANNELS:,} channels, which is the most; close some before making more"
            )
        self._last += 1
        self._channels[self._last] = Channel(tensor, capacity)
        return self._last

    def put(self, number: int, dtype: str, data: bytes) -> None:
        """The host's next value. Raises ResourceError if there is no room."""
        channel = self._find(number)
        cell = channel.cell(dtype, data, self._who)
        self._check_room(number, channel, len(channel.values) + 1)
        channel.values.append(cell)

    def set(self, number: int, dtype: str, data: bytes) -> None:
        """Replace the next value, for whoever takes it from now on. Raises ResourceError if there is none."""
        channel = self._find(number)
        cell = channel.cell(dtype, data, self._who)
        self._peek(number, 0)
        channel.values[0] = cell

    def take(self, number: int) -> tuple[Future[bytes], TensorType]:
        """The next value, which leaves the channel, once it is known."""
        found = self.read(number)
        self._find(number).values.popleft()
        return found

    def read(self, number: int) -> tuple[Future[bytes], TensorType]:
        """The same, and it stays."""
        cell = self._peek(number, 0)
        return cell.wait(), cell.type

    def drop(self, number: int) -> None:
        """The calls that took of it or put into it go on."""
        self._channels.pop(number, None)

    def clear(self) -> None:
        self._channels.clear()
        self._calls.clear()

    # ---- calls

    def exchange(self, call: ForwardCall) -> Exchange:
        """What a call takes and puts, looked up and checked: nothing has changed until it is committed."""
        return Exchange(self, call, self._who)

    def remember(self, name: int, call: Work | PieError) -> None:
        """Later calls may take outputs of this one, or hear why there are none, until it is forgotten."""
        self._calls[name] = call

    def forget(self, name: int) -> None:
        self._calls.pop(name, None)

    def output(self, source: OutputOf) -> Cell:
        """Raises what the call was refused with, and InvalidHandle or EpilogueError where there is no such value."""
        call = self._calls.get(source.name)
        if isinstance(call, PieError):
            raise type(call)(f"{self._who} takes a value of a pass that failed: {call}")
        if call is None or call.epilogue is None or source.number >= len(call.epilogue.outputs):
            raise InvalidHandle(
                f"{self._who} takes output {source.number} of pass {source.name}, which isn't under way or has none such"
            )
        if source.number not in call.cells:
            raise EpilogueError(
                f"{call.epilogue.line_of_output(source.number)}{self._who} takes an output of "
                f"{call.epilogue.outputs[source.number]} on the device; that can be one whole number, or a row of at most "
                f"{MAX_EMBEDDED}. Put anything else into a channel"
            )
        return call.cells[source.number]

    def _find(self, number: int) -> Channel:
        if number not in self._channels:
            raise InvalidHandle(f"{self._who} has no channel {number}; it was closed or never made")
        return self._channels[number]

    def _peek(self, number: int, place: int) -> Cell:
        values = self._find(number).values
        if place >= len(values):
            raise ResourceError(
                f"{self._who} takes a value of channel {number}, and nothing more was put into it; submit what puts it first"
            )
        return values[place]

    def _check_room(self, number: int, channel: Channel, wanted: int) -> None:
        if wanted > channel.capacity:
            raise ResourceError(
                f"{self._who} puts into channel {number}, which is full with {channel.capacity} values; take one first, or make "
                "it with a larger capacity"
            )


class Exchange:
    """``tokens`` and ``parameters`` are the call's, with cells where it names values of others; ``sources`` are those cells,
    ``kept`` the outputs that it puts into channels, with the channels' types."""

    def __init__(self, channels: Channels, call: ForwardCall, who: str) -> None:
        self._channels = channels
        self._puts = call.puts
        self._taken: Counter[int] = Counter()
        self._who = who
        self.sources: dict[Cell, None] = {}
        self.tokens = self._spliced(call.tokens, call.embeds) if call.embeds else call.tokens
        self.parameters = self._replaced(call.parameters, call.fetches) if call.fetches else call.parameters
        self.kept = tuple((output, channels._find(number).type) for output, number in call.puts)
        for number, count in Counter(number for _, number in call.puts).items():
            channel = channels._find(number)
            channels._check_room(number, channel, len(channel.values) - self._taken[number] + count)

    def commit(self, work: Work) -> None:
        """The call was accepted: what it takes leaves the channels, and its outputs enter them."""
        for number, count in self._taken.items():
            for _ in range(count):
                self._channels._find(number).values.popleft()
        for output, number in self._puts:
            self._channels._find(number).values.append(work.cells[output])

    def _spliced(self, given: tuple[int, ...], embeds: Sequence[tuple[int, Source]]) -> tuple[Token, ...]:
        tokens: list[Token] = []
        before = 0
        for place, source in embeds:
            if not before <= place <= len(given):
                raise InvalidHandle(
                    f"{self._who} embeds a value before token {place} of {len(given)}; name places in rising order"
                )
            cell = self._cell(source)
            if not could_be_tokens(cell.type, MAX_ENTRIES):
                raise EpilogueError(
                    f"{cell.line}{self._who} embeds {cell.type}; tokens are one whole number, or a row of them"
                )
            tokens += given[before:place]
            tokens += (Taken(cell, index) for index in range(cell.size))
            before = place
        return (*tokens, *given[before:])

    def _replaced(self, given: tuple[bytes, ...], fetches: Sequence[tuple[int, Source]]) -> tuple[bytes | Cell, ...]:
        found: dict[int, bytes | Cell] = dict(enumerate(given))
        for number, source in fetches:
            if number not in found:
                raise EpilogueError(f"{self._who} fetches parameter {number} of an epilogue, and gives {len(given)}")
            found[number] = self._cell(source)
        return tuple(found.values())

    def _cell(self, source: Source) -> Cell:
        if isinstance(source, Cell):
            cell = source
        elif isinstance(source, OutputOf):
            cell = self._channels.output(source)
        else:
            cell = self._channels._peek(source.channel, self._taken[source.channel])
            self._taken[source.channel] += not source.stays
        self.sources[cell] = None
        return cell
