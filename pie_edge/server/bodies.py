"""JSON bodies of requests, held against pydantic models: what is wrong is named by its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from pie_edge.errors import UsageError

if TYPE_CHECKING:
    from starlette.requests import Request

M = TypeVar("M", bound=BaseModel)

_MOST_PROBLEMS = 5
_LONGEST_VALUE = 80


async def read(request: Request, kind: type[M]) -> M:
    """Raises UsageError for what is no JSON or no body of this kind, naming each field that is wrong."""
    return check(parse(await request.body()), kind)


def parse(data: bytes) -> Any:
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise UsageError(f"the body is no JSON ({error}); send an object") from error


def check(body: Any, kind: type[M]) -> M:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        told = [_told(problem["loc"], problem["msg"], problem["type"], problem["input"]) for problem in problems]
        left = len(told) - _MOST_PROBLEMS
        raise UsageError("; ".join([*told[:_MOST_PROBLEMS], *([f"and {left} more"] if left > 0 else [])])) from error


def _told(place: tuple[int | str, ...], message: str, kind: str, value: Any) -> str:
    where = ".".join(map(str, place)) or "the body"
    if kind == "extra_forbidden":
        return f"{where}: there is no such field here"
    message = message.removeprefix("Value error, ")
    if kind == "missing" or isinstance(value, dict | list):
        return f"{where}: {message}"
    shown = repr(value)
    return f"{where}: {message}, not {shown if len(shown) <= _LONGEST_VALUE else shown[:_LONGEST_VALUE] + '…'}"
