"""Calls written in Python: ``[weather(city="Oslo"), now()]``."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

from pie_edge.tokenizer.formats.parser import broken

_JSON_NAMES = {"true": True, "false": False, "null": None}
_LONGEST = 65_536
"""Characters of code that are looked at: a parser takes stack for what is nested."""
_WRONG = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""What code that is no plain call makes the parser raise."""


def python_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and arguments of each call, in a list or one after the other. Raises BrokenError for anything else."""
    if len(text) > _LONGEST:
        broken("too long")
    try:
        body = _parsed(text.strip())
        found = [_call(node) for statement in body for node in _calls(statement)]
        json.dumps([arguments for _, arguments in found], allow_nan=False)
    except _WRONG:
        broken("no calls in Python")
    return found or broken("no call")


def _parsed(code: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a model's backslashes
        try:
            return ast.parse(code).body
        except SyntaxError:
            # A model writes lines in a text as they are.
            return ast.parse(code.replace("\n", "\\n")).body


def _calls(statement: ast.stmt) -> list[ast.expr]:
    if not isinstance(statement, ast.Expr):
        raise ValueError("no call")
    value = statement.value
    if isinstance(value, ast.Call) and _name(value.func) == "print" and value.args:
        return value.args  # shown what they give
    return list(value.elts) if isinstance(value, ast.List | ast.Tuple) else [value]


def _call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call by names")
    return _name(node.func), {_keyword(one): _value(one.value) for one in node.keywords}


def _keyword(one: ast.keyword) -> str:
    if one.arg is None:
        raise ValueError("no name")
    return one.arg


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{_name(value)}.{name}"
        case _:
            raise ValueError("no name")


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Name(name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.List(items) | ast.Tuple(items):
            return [_value(item) for item in items]
        case ast.Dict(keys, values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case _:
            return ast.literal_eval(node)


def _key(node: ast.expr | None) -> str:
    key = None if node is None else ast.literal_eval(node)
    if not isinstance(key, str):
        raise ValueError("no key of JSON")
    return key
