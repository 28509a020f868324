"""From an epilogue's function to its wire form, and from the host's answer back to what the function returned."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inferlet._host import Source
from inferlet.errors import EpilogueError
from inferlet.eta.tensor import Elements, Node, Tensor, as_tensor

VERSION = 1


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced epilogue, ready to go with a pass.

    ``wire`` is its text, ``parameters`` the values it brings along, in order, and ``rows`` how many rows the pass has to
    read out for it. ``pack`` gives the results the form that the function returned: one, a tuple, a list or a dict, or none.
    ``fetches`` are the parameters, by number, that come from channels, and ``puts`` the outputs that go to some. ``lines`` is
    where the author made each result.
    """

    wire: str
    parameters: list[Elements]
    rows: int
    result: str | list[str]
    fetches: list[tuple[int, Source]] = field(default_factory=list)
    puts: list[tuple[int, int]] = field(default_factory=list)
    lines: tuple[str, ...] = ()

    def with_parameters(self, parameters: list[Elements], fetches: list[tuple[int, Source]] | None = None) -> Traced:
        """The same epilogue for another pass. ``fetches`` stand in place of its own."""
        return replace(self, parameters=parameters, fetches=self.fetches if fetches is None else fetches)

    def output_of(self, key: Any) -> int | None:
        """The number of the output that ``result[key]`` is, or with ``key`` None of the only one; None if there is no such."""
        if key is None or self.result == "one":
            return 0 if key is None and self.result == "one" else None
        keys = self.result if isinstance(self.result, list) else list(range(len(self.lines)))
        return keys.index(key) if key in keys else None

    def pack(self, values: Sequence[Any]) -> Any:
        if self.result == "one":
            return values[0]
        if self.result == "tuple":
            return tuple(values)
        if self.result == "list":
            return list(values)
        return None if self.result == "none" else dict(zip(self.result, values, strict=True))


@dataclass(slots=True)
class Session:
    """What an epilogue's function does to channels while it is traced: ``(node, source)`` and ``(channel, tensor)`` each."""

    takes: list[tuple[Node, Source]] = field(default_factory=list)
    puts: list[tuple[int, Tensor]] = field(default_factory=list)


_sessions: list[Session] = []


def session() -> Session | None:
    """That of the function being traced, if one is."""
    return _sessions[-1] if _sessions else None


def trace(function: Callable[[], Any]) -> Traced:
    """Run ``function`` once, on symbols. Raises EpilogueError where it returns no tensors; its own errors pass through."""
    began = Session()
    _sessions.append(began)
    try:
        returned, result = _outputs(function(), bool(began.puts))
    finally:
        _sessions.pop()
    outputs, puts = _with_puts(returned, began.puts)
    nodes = _needed(outputs, [node for node, _ in began.takes])
    numbers = {node.serial: number for number, node in enumerate(nodes)}
    parameters: list[Elements] = []
    places: dict[int, int] = {}
    document = {
        "v": VERSION,
        "nodes": [_entry(node, numbers, parameters, places) for node in nodes],
        "outputs": [_reference(tensor, numbers) for tensor in outputs],
        "result": "tuple" if result == "none" else result,
        "unreturned": len(outputs) - len(returned),
    }
    rows = max((int(node.attributes.get("rows", 1)) for node in nodes), default=1)
    return Traced(
        json.dumps(document, separators=(",", ":")),
        parameters,
        rows,
        result,
        [(places[node.serial], source) for node, source in began.takes],
        puts,
        tuple(tensor.node.line for tensor in returned),
    )


def _with_puts(returned: list[Tensor], put: Sequence[tuple[int, Tensor]]) -> tuple[list[Tensor], list[tuple[int, int]]]:
    """The outputs, those that only go to channels last; and which of them goes where."""
    outputs, puts = list(returned), []
    places = {(tensor.node.serial, tensor.result): number for number, tensor in reversed(list(enumerate(outputs)))}
    for channel, tensor in put:
        number = places.setdefault((tensor.node.serial, tensor.result), len(outputs))
        if number == len(outputs):
            outputs.append(tensor)
        puts.append((number, channel))
    return outputs, puts


def _outputs(returned: Any, puts: bool) -> tuple[list[Tensor], str | list[str]]:
    if isinstance(returned, Mapping):
        _check_some(returned)
        return [as_tensor(value) for value in returned.values()], [str(name) for name in returned]
    if isinstance(returned, tuple | list):
        _check_some(returned)
        return [as_tensor(value) for value in returned], "tuple" if isinstance(returned, tuple) else "list"
    if returned is None and puts:
        return [], "none"
    if returned is None:
        raise EpilogueError(
            "the epilogue's function returned None; return a tensor, or a tuple, list or dict of tensors"
        )
    return [as_tensor(returned)], "one"


def _check_some(returned: Any) -> None:
    if not returned:
        raise EpilogueError(
            "the epilogue's function returned nothing; return a tensor, or a tuple, list or dict of tensors"
        )


def _needed(outputs: Sequence[Tensor], others: Sequence[Node]) -> list[Node]:
    """The nodes that the outputs need, and ``others``, in the order they were made."""
    found: dict[int, Node] = {}
    pending = [*(tensor.node for tensor in outputs), *others]
    while pending:
        node = pending.pop()
        if node.serial not in found:
            found[node.serial] = node
            pending += [tensor.node for tensor in node.inputs]
    return [found[serial] for serial in sorted(found)]


def _entry(
    node: Node, numbers: Mapping[int, int], parameters: list[Elements], places: dict[int, int]
) -> dict[str, Any]:
    """``places`` is told which parameter each such node is."""
    attributes = node.attributes
    if node.parameter is not None:
        places[node.serial] = len(parameters)
        attributes = {**attributes, "index": len(parameters)}
        parameters.append(node.parameter)
    inputs = [_reference(tensor, numbers) for tensor in node.inputs]
    return {"op": node.op, "in": inputs, "attrs": attributes, "line": node.line}


def _reference(tensor: Tensor, numbers: Mapping[int, int]) -> int | list[int]:
    number = numbers[tensor.node.serial]
    return [number, tensor.result] if tensor.result else number
