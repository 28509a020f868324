"""Epilogues are traced once, not at every step: a loop that writes its lambda out in place pays for it the first time only."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from inferlet.eta.channel import Channel
from inferlet.eta.trace import Traced, trace

_MOST = 256
_CONSTANT = (int, float, bool, str, bytes, type(None))
_traced: dict[Any, Traced] = {}


def traced(function: Callable[[], Any]) -> Traced:
    """What ``trace`` gives for ``function``, from memory where it can only give the same again."""
    key = _key(function)
    if key is None:
        return trace(function)
    found = _traced.get(key)
    if found is None:
        if len(_traced) >= _MOST:
            _traced.clear()
        found = _traced[key] = trace(function)
    return found


def _key(function: Any) -> Any:
    """Everything that the trace depends on: the code, and each value it refers to by name. None where that isn't known: it
    refers to what may change inside, or to code that refers to more."""
    if type(function) is not FunctionType or function.__kwdefaults__:
        return None
    code = function.__code__
    known = function.__globals__
    values = [known[name] for name in code.co_names if name in known]
    try:
        values += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable that has no value yet
        return None
    values += function.__defaults__ or ()
    if any(type(constant) is CodeType for constant in code.co_consts):
        return None
    key: list[Any] = [code]
    for value in values:
        if type(value) in _CONSTANT:
            key += [type(value), value]
        elif isinstance(value, Channel):
            # Not itself: what is remembered would keep it alive. Its number is never used again.
            key += [Channel, value.id]
        elif _is_ours(value):
            key.append(value)
        else:
            return None
    return tuple(key)


def _is_ours(value: Any) -> bool:
    """A module or function of the SDK: what it does doesn't change."""
    if isinstance(value, ModuleType):
        name = value.__name__
    elif isinstance(value, FunctionType | BuiltinFunctionType):
        name = value.__module__ or ""
    else:
        return False
    return name == "inferlet" or name.startswith("inferlet.")
