"""The wire form of an epilogue, read into plain records and nothing more.

    {"v": 1,
     "nodes": [{"op": "logits", "in": [], "attrs": {}, "line": "main.py:12"},
               {"op": "reduce_argmax", "in": [0], "attrs": {"axis": -1}, "line": "main.py:12"}],
     "outputs": [1],
     "result": "one",
     "unreturned": 0}

A reference is a node's number, or ``[number, result]`` for a node with several results; it must lie before the node
that uses it, so there can be no cycle. ``line`` is where the author wrote it, for error messages. ``result`` says how the
author's function returned its tensors (``one``, ``tuple``, ``list``, or a list of keys): the guest's own note. The last
``unreturned`` outputs aren't given back: they only go into channels.
The text comes from an untrusted guest: any text gives records or an ``EpilogueError``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pie_edge.errors import EpilogueError

VERSION = 1
MAX_BYTES = 128 * 1024
MAX_NODES = 512
MAX_OUTPUTS = 16
MAX_OPERANDS = 64
MAX_LINE = 200


@dataclass(frozen=True, slots=True)
class Reference:
    node: int
    result: int = 0


@dataclass(frozen=True, slots=True)
class WireNode:
    op: str
    inputs: tuple[Reference, ...]
    attributes: Mapping[str, Any]
    line: str


@dataclass(frozen=True, slots=True)
class Wire:
    nodes: tuple[WireNode, ...]
    outputs: tuple[Reference, ...]
    unreturned: int = 0


def read(text: str | bytes) -> Wire:
    """Raises EpilogueError for anything that isn't the form above."""
    document = _fields(
        _load(text), "the epilogue", required=("v", "nodes", "outputs"), optional=("result", "unreturned")
    )
    if document["v"] != VERSION:
        _refuse(f"the epilogue's version is {_short(document['v'])}, this build reads {VERSION}; use its own SDK")
    nodes = _list(document["nodes"], "nodes", MAX_NODES)
    outputs = _list(document["outputs"], "outputs", MAX_OUTPUTS)
    if not outputs:
        _refuse("the epilogue has no output; return a tensor from its function")
    unreturned = document.get("unreturned", 0)
    if type(unreturned) is not int or not 0 <= unreturned <= len(outputs):
        _refuse(f"unreturned is {_short(unreturned)}; write how many of the {len(outputs)} outputs aren't given back")
    _check_result(document.get("result", "one"), len(outputs) - unreturned)
    return Wire(
        tuple(_node(node, index) for index, node in enumerate(nodes)),
        tuple(_reference(output, len(nodes), "outputs") for output in outputs),
        unreturned,
    )


def _load(text: str | bytes) -> Any:
    if len(text) > MAX_BYTES:
        _refuse(
            f"the epilogue's wire form has {len(text)} bytes, the most is {MAX_BYTES}; pass long vectors as param(…)"
        )
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        # json's own messages name a place but never echo the text.
        _refuse(f"the epilogue isn't valid JSON: {error}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; write it as a string")


def _node(value: Any, index: int) -> WireNode:
    fields = _fields(value, f"node {index}", required=("op",), optional=("in", "attrs", "line"))
    inputs = _list(fields.get("in", []), f"node {index}: in", MAX_OPERANDS)
    attributes, line = fields.get("attrs", {}), fields.get("line", "")
    if not isinstance(fields["op"], str):
        _refuse(f"node {index}: op is {_short(fields['op'])}, not a name")
    if not isinstance(attributes, dict):
        _refuse(f"node {index}: attrs is {_short(attributes)}, not an object")
    if not isinstance(line, str):
        _refuse(f"node {index}: line is {_short(line)}, not text")
    references = tuple(_reference(item, index, f"node {index}: in") for item in inputs)
    return WireNode(fields["op"], references, attributes, _printable(line))


def _reference(value: Any, before: int, where: str) -> Reference:
    parts = value if isinstance(value, list) and len(value) == 2 else [value, 0]
    if any(type(part) is not int for part in parts):
        _refuse(f"{where}: {_short(value)} is no reference; write a node's number or [number, result]")
    node, result = parts
    if not 0 <= node < before:
        _refuse(f"{where}: node {node} doesn't come before; references go back, to 0 … {before - 1}")
    return Reference(node, result)


def _check_result(value: Any, outputs: int) -> None:
    names = isinstance(value, list) and len(value) == outputs and all(isinstance(name, str) for name in value)
    if not names and value not in ("one", "tuple", "list"):
        _refuse(f"result is {_short(value)}; write one, tuple, list, or a key for each of the {outputs} outputs")
    if value == "one" and outputs != 1:
        _refuse(f"result is one tensor and there are {outputs} outputs")


def _fields(value: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{what} is {_short(value)}, not an object")
    missing = [name for name in required if name not in value]
    unknown = [name for name in value if name not in required + optional]
    if missing or unknown:
        _refuse(f"{what} lacks {missing}, and has unknown fields {_short(unknown)}; it takes {[*required, *optional]}")
    return value


def _list(value: Any, what: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"{what} is {_short(value)}, not a list")
    if len(value) > most:
        _refuse(f"{what} has {len(value)} entries, the most is {most}")
    return value


def _short(value: object) -> str:
    return _printable(repr(value))[:60]


def _printable(text: str) -> str:
    """Safe in a log line: no control characters, no lone surrogates, not endless."""
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_LINE])


def _refuse(message: str) -> NoReturn:
    raise EpilogueError(message)
