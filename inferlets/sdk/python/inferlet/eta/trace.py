"""From an epilogue's function to its wire form, and from the host's answer back to what the function returned."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferlet.errors import EpilogueError
from inferlet.eta.tensor import Elements, Node, Tensor, as_tensor

VERSION = 1


class Traced:
    """A traced epilogue, ready to go with a pass.

    ``wire`` is its text, ``parameters`` the values it brings along, in order, and ``rows`` how many rows the pass has to
    read out for it. ``pack`` gives the results the form that the function returned: one, a tuple, a list or a dict.
    """

    __slots__ = ("_result", "parameters", "rows", "wire")

    def __init__(self, wire: str, parameters: list[Elements], rows: int, result: str | list[str]) -> None:
        self.wire = wire
        self.parameters = parameters
        self.rows = rows
        self._result = result

    def with_parameters(self, parameters: list[Elements]) -> Traced:
        """The same epilogue for another pass."""
        return Traced(self.wire, parameters, self.rows, self._result)

    def pack(self, values: Sequence[Any]) -> Any:
        if self._result == "one":
            return values[0]
        if self._result == "tuple":
            return tuple(values)
        if self._result == "list":
            return list(values)
        return dict(zip(self._result, values, strict=True))


def trace(function: Callable[[], Any]) -> Traced:
    """Run ``function`` once, on symbols. Raises EpilogueError where it returns no tensors; its own errors pass through."""
    outputs, result = _outputs(function())
    nodes = _needed(outputs)
    numbers = {node.serial: number for number, node in enumerate(nodes)}
    parameters: list[Elements] = []
    document = {
        "v": VERSION,
        "nodes": [_entry(node, numbers, parameters) for node in nodes],
        "outputs": [_reference(tensor, numbers) for tensor in outputs],
        "result": result,
    }
    rows = max((int(node.attributes.get("rows", 1)) for node in nodes), default=1)
    return Traced(json.dumps(document, separators=(",", ":")), parameters, rows, result)


def _outputs(returned: Any) -> tuple[list[Tensor], str | list[str]]:
    if isinstance(returned, Mapping):
        _check_some(returned)
        return [as_tensor(value) for value in returned.values()], [str(name) for name in returned]
    if isinstance(returned, tuple | list):
        _check_some(returned)
        return [as_tensor(value) for value in returned], "tuple" if isinstance(returned, tuple) else "list"
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


def _needed(outputs: Sequence[Tensor]) -> list[Node]:
    """The nodes that the outputs need, in the order they were made."""
    found: dict[int, Node] = {}
    pending = [tensor.node for tensor in outputs]
    while pending:
        node = pending.pop()
        if node.serial not in found:
            found[node.serial] = node
            pending += [tensor.node for tensor in node.inputs]
    return [found[serial] for serial in sorted(found)]


def _entry(node: Node, numbers: Mapping[int, int], parameters: list[Elements]) -> dict[str, Any]:
    attributes = node.attributes
    if node.parameter is not None:
        attributes = {**attributes, "index": len(parameters)}
        parameters.append(node.parameter)
    inputs = [_reference(tensor, numbers) for tensor in node.inputs]
    return {"op": node.op, "in": inputs, "attrs": attributes, "line": node.line}


def _reference(tensor: Tensor, numbers: Mapping[int, int]) -> int | list[int]:
    number = numbers[tensor.node.serial]
    return [number, tensor.result] if tensor.result else number
