"""Failures as the host reports them: a code, a message, and a traceback of the user's frames alone."""

from __future__ import annotations

import traceback
from typing import Any

from inferlet import _program
from inferlet.errors import PieError

_LONGEST = 64 * 1024


class FailureError(Exception):
    """Why there is no result."""

    def __init__(self, code: str, message: str, traceback: str = "", cause: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.traceback = traceback
        self.cause = cause


class InvalidProgramError(Exception):
    """The program has no usable ``main``."""


class DeadlockError(Exception):
    """The program waits for ever."""

    def __init__(self, path: str, places: list[str]) -> None:
        where = "; ".join(sorted(set(places))) or path
        super().__init__(f"the program waits for something that nothing it started can bring about ({where})")


class UnserialisableError(Exception):
    """The result has no JSON form."""


def explain(error: BaseException) -> FailureError:
    """The failure that an exception of the user's program is."""
    match error:
        case FailureError():
            return error
        case InvalidProgramError():
            return FailureError("inferlet-invalid", str(error))
        case DeadlockError() | UnserialisableError():
            return FailureError("inferlet-failed", str(error))
        case SyntaxError() if error.filename is None or error.filename in _program.files:
            return FailureError("inferlet-invalid", _one_line(error), _users(error))
        case ModuleNotFoundError():
            error.add_note(
                "An inferlet can import inferlet, the standard library, and the modules beside its main file."
            )
        case MemoryError() if not error.args:  # with a reason it is the compiler's, of a source given to eval
            return FailureError("inferlet-memory", "out of memory", _users(error))
        case SystemExit():
            return FailureError(
                "inferlet-failed",
                f"the program called sys.exit({error.code!r}); return from main instead",
                _users(error),
            )
    cause = error.code if isinstance(error, PieError) else None
    return FailureError("inferlet-failed", _one_line(error), _users(error), cause)


def _one_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        line = "" if error.lineno is None else f", line {error.lineno}"
        return f"{error.filename}{line}: {error.msg}" if error.filename else error.msg
    return traceback.format_exception_only(error)[0].strip()[:2000]


def _users(error: BaseException) -> str:
    """The traceback without the frames of the SDK, of asyncio and of the standard library."""
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        _strip(report)
        text = "".join(report.format())
    except (RecursionError, MemoryError):
        return f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else text[: _LONGEST // 2] + "\n…\n" + text[-_LONGEST // 2 :]


def _strip(report: traceback.TracebackException) -> None:
    pending: list[Any] = [report]
    while pending:
        one = pending.pop()
        if one is None:
            continue
        users = [frame for frame in one.stack if frame.filename in _program.files]
        one.stack[:] = users
        pending += [one.__cause__, one.__context__, *(one.exceptions or ())]
