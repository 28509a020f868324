"""WGSL with constants: WGSL has no preprocessor, and arrays in registers can't be sized by its overrides.

Sources in ``shaders/wgsl`` are WGSL with lines of our own, which begin with ``#``:

    #include NAME            the text of lib/NAME.wgsl
    #if EXPR … #elif EXPR … #else … #end
    #for NAME in EXPR … #end   once for each, a number standing for its range

and ``${EXPR}`` within a line. Expressions are Python's, over a kernel's constants. What is repeated is written out: then an
array's elements are variables, which every driver keeps in registers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from pie_edge.errors import BackendUnavailable

FOLDER = Path(__file__).resolve().parents[2] / "shaders" / "wgsl"
"""``shaders/`` is two folders up both in a checkout and in an installed package."""
_DIRECTIVE = re.compile(r"\s*#(include|if|elif|else|for|end)\b\s*(.*)")
_LOOP = re.compile(r"(\w+) in (.+)")


@dataclass(frozen=True, slots=True)
class _Line:
    pieces: tuple[str | CodeType, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    branches: tuple[tuple[CodeType, tuple[_Node, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Loop:
    name: str
    over: CodeType
    body: tuple[_Node, ...]


_Node = _Line | _Choice | _Loop


def expand(name: str, constants: Mapping[str, Any]) -> str:
    """The WGSL of kernel ``name``. Constants that are numbers or truths are constants of the module, too."""
    lines = [f"const {key}: {kind} = {text};" for key, kind, text in _declared(constants)]
    env = dict(constants)
    lines += _written(_source(name), env)
    # WGSL wants what enables an extension before all else; whoever uses one is read later.
    return "\n".join(sorted(lines, key=lambda line: not line.startswith("enable "))) + "\n"


def _declared(constants: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, value in constants.items():
        if isinstance(value, bool):
            yield name, "bool", str(value).lower()
        elif isinstance(value, int):
            yield name, "u32", f"{value}u"
        elif isinstance(value, float):
            yield name, "f32", repr(value)


def _written(nodes: tuple[_Node, ...], env: dict[str, Any]) -> Iterator[str]:
    for node in nodes:
        match node:
            case _Line(pieces):
                yield "".join(piece if isinstance(piece, str) else str(eval(piece, env)) for piece in pieces)
            case _Choice(branches):
                yield from _written(next((body for test, body in branches if eval(test, env)), ()), env)
            case _Loop(name, over, body):
                found = eval(over, env)
                for item in range(found) if isinstance(found, int) else found:
                    yield from _written(body, env | {name: item})


def _read(name: str) -> str:
    try:
        return (FOLDER / f"{name}.wgsl").read_text(encoding="utf-8")
    except OSError as error:
        raise BackendUnavailable(f"shader {name} can't be read ({error}); install pie-edge again") from error


@lru_cache(maxsize=64)
def constant_names(name: str) -> tuple[str, ...]:
    """The constants that a source lists in a line ``// constants: …``."""
    found = re.search(r"^// constants: (.+)$", _read(name), re.MULTILINE)
    return tuple(found[1].split()) if found else ()


@lru_cache(maxsize=64)
def _source(name: str) -> tuple[_Node, ...]:
    lines = iter(_with_includes(name))
    nodes, ended = _block(lines, name)
    if ended:
        raise ValueError(f"{name}.wgsl: #{ended} without a beginning")
    return nodes


def _with_includes(name: str) -> Iterator[str]:
    for line in _read(name).splitlines():
        found = _DIRECTIVE.fullmatch(line)
        if found and found[1] == "include":
            yield from _with_includes(f"lib/{found[2].strip()}")
        else:
            yield line


def _block(lines: Iterator[str], name: str) -> tuple[tuple[_Node, ...], str]:
    """Nodes up to a line that ends them, and that line's directive with its expression."""
    nodes: list[_Node] = []
    for line in lines:
        found = _DIRECTIVE.fullmatch(line)
        if found is None:
            nodes.append(_Line(tuple(_pieces(line))))
        elif found[1] in ("end", "else", "elif"):
            return tuple(nodes), f"{found[1]} {found[2]}".strip()
        elif found[1] == "if":
            nodes.append(_choice(found[2], lines, name))
        else:
            loop = _LOOP.fullmatch(found[2].strip())
            if loop is None:
                raise ValueError(f"{name}.wgsl: {line.strip()} is no loop")
            body, _ = _block(lines, name)
            nodes.append(_Loop(loop[1], _compiled(loop[2]), body))
    return tuple(nodes), ""


def _choice(test: str, lines: Iterator[str], name: str) -> _Choice:
    branches = []
    while True:
        body, ended = _block(lines, name)
        branches.append((_compiled(test), body))
        if not ended:
            raise ValueError(f"{name}.wgsl: #if {test} has no #end")
        if ended == "end":
            return _Choice(tuple(branches))
        test = "True" if ended == "else" else ended.removeprefix("elif ")


def _pieces(line: str) -> Iterator[str | CodeType]:
    """Text and expressions in turn; braces within an expression are balanced."""
    while "${" in line:
        before, _, line = line.partition("${")
        yield before
        depth, end = 1, 0
        while depth:
            depth += {"{": 1, "}": -1}.get(line[end], 0)
            end += 1
        yield _compiled(line[: end - 1])
        line = line[end:]
    yield line


def _compiled(text: str) -> CodeType:
    return compile(text.strip(), "<wgsl>", "eval")
