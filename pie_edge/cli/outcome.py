"""How a command ends: every exception becomes a message on stderr and an exit status, in one place."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

import typer

from pie_edge.cli.interrupts import INTERRUPTED, settled
from pie_edge.errors import BackendUnavailable, InferletFailed, ModelNotFound, PieError, UsageError

P = ParamSpec("P")

FAILED, MISUSED, READER_GONE = 1, 2, 141


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command's function so that whatever it raises is told in our words, never as a traceback of ours.

    One that was asked for JSON (``as_json``) has the error as an object on stdout, too.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            try:
                command(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            settled()
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _forget_output()
            raise typer.Exit(READER_GONE) from None
        except Exception as error:
            if isinstance(error, OSError):
                _settle_output()
            if kwargs.get("as_json"):
                with contextlib.suppress(OSError):
                    print_json(error_object(error))
            tell(error)
            raise typer.Exit(status(error)) from None

    return wrapped


def _settle_output() -> None:
    """After an error that may have been that of writing the output."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """After output failed: Python flushes once more at exit, and would complain about the same pipe or disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def status(error: BaseException) -> int:
    """2 if what was asked for isn't there or can't be met as asked, else 1."""
    return MISUSED if isinstance(error, UsageError | BackendUnavailable | ModelNotFound) else FAILED


def tell(error: Exception) -> None:
    """The error on stderr. Of an inferlet's own exception, its own traceback, which ends with the message."""
    with contextlib.suppress(OSError):  # with a full disk or a gone reader behind stderr, the exit status has to do
        _tell(error)


def _tell(error: Exception) -> None:
    if os.environ.get("PIE_EDGE_DEBUG"):
        traceback.print_exception(error)
    guest = getattr(error, "traceback", "")
    if guest:
        print(guest.rstrip("\n"), file=sys.stderr)
    if isinstance(error, InferletFailed) and guest:
        return
    print(f"error: {describe(error)}", file=sys.stderr)


def describe(error: Exception) -> str:
    if isinstance(error, PieError):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return f"unexpected {type(error).__name__}: {error} (PIE_EDGE_DEBUG=1 shows where; please report it)"


def print_json(value: dict[str, object]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def error_object(error: Exception) -> dict[str, object]:
    """The error as ``--json`` prints it."""
    told: dict[str, object] = {"code": getattr(error, "code", "internal"), "message": describe(error)}
    if guest := getattr(error, "traceback", ""):
        told["traceback"] = guest
    return {"error": told}
