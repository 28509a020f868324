"""Functions that are sent to a server as source.

What travels is the function, and of its module what it uses: functions and classes that are defined there, constants, and imports
of the standard library and of ``inferlet``. Everything else is refused with its name, before anything is sent.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pie_edge.errors import UsageError

_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"}
_PROVIDED = {"inferlet"}
"""Beside the standard library, what an inferlet can import."""
_FLAGS = __future__.annotations.compiler_flag
_LONGEST_CONSTANT = 2**20


@dataclass(frozen=True, slots=True)
class Program:
    """``source`` is a Python file with a ``main``."""

    name: str
    source: str


def inferlet(function: Callable[..., Any]) -> Program:
    """A function, plain or async, as a program: it is given the input, a dict, and what it returns is the result.

    Imports of ``inferlet`` belong inside of it, for there is no such module here. Raises UsageError for a function that uses what
    can't travel.
    """
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise UsageError(f"@inferlet takes a function that was defined with def, not {function!r:.80}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{function.__name__} yields, and a program returns its result; send what comes before it by session.send"
        )
    try:
        inspect.signature(function).bind({})
    except TypeError as error:
        raise UsageError(
            f"{function.__name__} is called with one argument, the input, a dict, and can't be: {error}"
        ) from None
    if function.__closure__:
        names = ", ".join(function.__code__.co_freevars)
        raise UsageError(
            f"{function.__name__} uses {names} of the function around it, which stays here; pass it in the input"
        )
    return Program(function.__name__, _Sender(function).text())


def read(program: Program | Path) -> str:
    """Its source. Raises UsageError."""
    if isinstance(program, Program):
        return program.source
    if not isinstance(program, Path):
        raise UsageError(f"{program!r:.80} is no program; give a function with @inferlet, a Path, or a program's name")
    path = program / "main.py" if program.is_dir() else program
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read: {error}") from None


class _Sender:
    """Gathers the parts of a module that a function needs."""

    def __init__(self, function: types.FunctionType) -> None:
        self._main = function
        self._globals = function.__globals__
        self._imports: list[str] = []
        self._constants: list[str] = []
        self._definitions: list[str] = []
        self._seen: set[str] = set()

    def text(self) -> str:
        name = self._main.__name__
        self._seen.add(name)
        self._define(self._main, strip_decorators=True)
        main = [] if name == "main" else [f"main = {name}"]
        parts = ["from __future__ import annotations", *self._imports, *self._constants, *self._definitions, *main]
        return "\n\n".join(parts) + "\n"

    def _define(self, thing: Any, *, strip_decorators: bool = False) -> None:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
        except (OSError, TypeError, SyntaxError):
            raise UsageError(
                f"the source of {thing.__qualname__} can't be found; define it in a file or a notebook's cell, or send a file"
            ) from None
        definition = tree.body[0]
        assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if strip_decorators:
            # Those above @inferlet got a Program, and those below it are a part of the function.
            last = next((at for at, one in enumerate(definition.decorator_list) if "inferlet" in ast.unparse(one)), -1)
            definition.decorator_list = definition.decorator_list[last + 1 :]
        code = compile(tree, thing.__qualname__, "exec", flags=_FLAGS, dont_inherit=True)
        for name in _names(code):
            self._need(name, thing.__name__)
        self._definitions.append(ast.unparse(tree))

    def _need(self, name: str, who: str) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        if name not in self._globals:
            if not hasattr(builtins, name):
                raise UsageError(
                    f"{who} uses {name}, which its module doesn't define; import it inside of the function, or pass it in "
                    "the input"
                )
            return
        value = self._globals[name]
        if isinstance(value, types.ModuleType):
            self._import(value.__name__, f"import {value.__name__} as {name}", name, who)
        elif isinstance(value, types.FunctionType | type) or (
            callable(value) and getattr(value, "__module__", None) in sys.stdlib_module_names
        ):
            self._bring(name, value, who)
        else:
            self._constants.append(f"{name} = {_constant(name, value, who)}")

    def _bring(self, name: str, value: Any, who: str) -> None:
        """A function or class, of the same module or of another one."""
        module, its_name = str(value.__module__), str(getattr(value, "__name__", name))
        if module != self._main.__module__:
            there = getattr(sys.modules.get(module), its_name, None)
            if there is not value:
                raise UsageError(f"{who} uses {name}, which can't be imported from {module}; import it inside of {who}")
            self._import(module, f"from {module} import {its_name} as {name}", name, who)
            return
        if "<locals>" in value.__qualname__ and getattr(value, "__closure__", None):
            raise UsageError(f"{who} uses {name}, which uses names of the function around it; pass them as arguments")
        self._define(value)
        if its_name != name:
            self._definitions.append(f"{name} = {its_name}")

    def _import(self, module: str, statement: str, name: str, who: str) -> None:
        root = module.partition(".")[0]
        if root not in sys.stdlib_module_names | _PROVIDED:
            raise UsageError(
                f"{who} uses {name} of {root}, which no inferlet has: there are the standard library and inferlet. "
                "Do that part here, and pass its result in the input"
            )
        self._imports.append(statement)


def _names(code: types.CodeType) -> Iterator[str]:
    """Globals that code and the functions in it use, but for those that it defines."""
    defined: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_NAME":
            defined.add(str(instruction.argval))
        elif instruction.opname in _GLOBAL and instruction.argval not in defined:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from (name for name in _names(constant) if name not in defined or code.co_name != "<module>")


def _constant(name: str, value: Any, who: str) -> str:
    text = repr(value)
    if len(text) > _LONGEST_CONSTANT:
        raise UsageError(f"{who} uses {name}, which is {len(text):,} characters long; pass it in the input")
    try:
        same = type(ast.literal_eval(text)) is type(value) and ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        same = False
    if not same:
        raise UsageError(
            f"{who} uses {name}, {type(value).__name__} of this process that can't travel; numbers, texts, lists and the like "
            "can. Make it inside of the function, or pass it in the input"
        )
    return text
