"""The error of a WIT result as the exception it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from componentize_py_types import Err
from wit_world.imports import types

from inferlet._guard import guarded
from inferlet.errors import PieError, from_code


def error(value: types.Error) -> PieError:
    return from_code(value.code, value.message)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, with its arguments checked, raising what it fails with."""
    safe = guarded(function)

    def call(*arguments: Any) -> Any:
        try:
            return safe(*arguments)
        except Err as failure:
            raise error(failure.value) from None

    return call
