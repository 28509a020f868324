"""Runs a program from its source: compile, call ``main``, give its result as JSON, or say what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import sys
import traceback
from collections.abc import Awaitable
from types import ModuleType
from typing import Any

from inferlet import _imports, _program, _streams, runtime
from inferlet._loop import Loop, StuckError
from inferlet._report import DeadlockError, FailureError, InvalidProgramError, explain
from inferlet._results import dump
from inferlet._source import compile_file
from inferlet.errors import UsageError


def run(path: str, text: str, input: str) -> str:
    """The result of ``main`` as JSON. Raises ``FailureError``, and nothing else."""
    _streams.install()
    runtime.reseed()
    try:
        _program.arguments = _read(input)
        return dump(_call(_load(path, text), path))
    except BaseException as error:
        _program.ballast.clear()
        failure = explain(error)
        traceback.clear_frames(error.__traceback__)
    finally:
        _streams.flush()
    # Not from inside: the program's exception, and all that its frames hold, is gone by now.
    raise failure


def _read(input: str) -> dict[str, Any]:
    try:
        value = json.loads(input)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the input is no JSON: {error}; pass an object") from None
    if not isinstance(value, dict):
        raise UsageError(f"the input is {type(value).__name__} in JSON; pass an object")
    return value


def _load(path: str, text: str) -> ModuleType:
    code = compile_file(path, text)
    module = ModuleType("main")
    module.__file__ = path
    sys.modules["main"] = module
    _imports.install()
    exec(code, module.__dict__)
    return module


def _call(module: ModuleType, path: str) -> Any:
    main = getattr(module, "main", None)
    if main is None:
        raise InvalidProgramError(
            f"{path} has no main; write `async def main(input: dict)` and return a result from it"
        )
    if not callable(main):
        raise InvalidProgramError(
            f"main of {path} is {type(main).__name__}, not a function; write `async def main(input: dict)`"
        )
    result = main(*_arguments(main, path))
    return _complete(result, path) if inspect.isawaitable(result) else result


def _complete(result: Awaitable[Any], path: str) -> Any:
    """What an awaitable gives, in a loop of its own."""
    loop = Loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(result)
    except StuckError:
        raise DeadlockError(path, _places(loop)) from None
    except MemoryError:
        loop.set_exception_handler(lambda loop, context: None)  # tasks by the thousand would each report theirs
        raise
    finally:
        if not isinstance(sys.exception(), MemoryError):
            _finish(loop)


def _arguments(main: Any, path: str) -> tuple[Any, ...]:
    """``main`` may take the input or nothing."""
    signature = inspect.signature(main)
    for arguments in ((_program.arguments,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return arguments
    raise InvalidProgramError(
        f"main{signature} of {path} can't be called with one input; write `async def main(input: dict)`"
    )


def _places(loop: Loop) -> list[str]:
    """Where the tasks of this program wait, for a program that is stuck."""
    places = []
    for task in asyncio.all_tasks(loop):
        frames: list[Any] = []
        inner: Any = task.get_coro()
        while inner is not None:
            frames.append(getattr(inner, "cr_frame", None))
            inner = getattr(inner, "cr_await", None)
        users = [frame for frame in frames if frame is not None and frame.f_code.co_filename in _program.files]
        places += [f"{frame.f_code.co_filename}, line {frame.f_lineno}" for frame in users[-1:]]
    return places


def _finish(loop: Loop) -> None:
    """Ends what ``main`` left running, as ``asyncio.run`` does."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        with contextlib.suppress(StuckError):  # a task that swallows its cancellation ends with the instance
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    gc.collect()  # a task that failed and that nobody awaited says so when it is collected
    asyncio.set_event_loop(None)


__all__ = ["FailureError", "run"]
