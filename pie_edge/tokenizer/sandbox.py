"""Jinja2 as chat templates expect it, in a sandbox: templates come with models and are not to be trusted.

Import this module only when a template is compiled: Jinja2 costs tens of milliseconds at start-up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import Template, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pie_edge.errors import TemplateError

MAX_STEPS = 1_000_000
"""Loop turns of one rendering, a macro call for ten of them. Jinja2 alone limits a range to 100,000, and loops nest."""

_MACRO_STEPS = 10

MAX_CHARACTERS = 1 << 24
"""Length of a rendering, and of any string or list that a template builds by multiplying or adding."""

_FILE = "<chat template>"


class RefusalError(Exception):
    """The template's own ``raise_exception``."""


class ExcessError(Exception):
    """The template does more than any template needs."""


class Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what a model said, for training; here its body just renders."""

    tags = {"generation"}  # noqa: RUF012 (declared so by Jinja2)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template; counts what a rendering does."""

    intercepted_binops = frozenset({"*", "**", "+"})

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", Generation],
            # A null that reaches the text would read "None" to the model.
            finalize=lambda value: "" if value is None else value,
        )
        self.steps = 0
        self.globals.pop("lipsum", None)
        self.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: clock().strftime(form)}
        self.filters["tojson"] = _tojson

    def counted(self, iterable: Iterable[Any]) -> Iterator[Any]:
        for item in iterable:
            self.step()
            yield item

    def step(self, count: int = 1) -> None:
        self.steps += count
        if self.steps > MAX_STEPS:
            raise ExcessError(f"it takes more than {MAX_STEPS:,} steps")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _result_size(operator, left, right) > MAX_CHARACTERS:
            raise ExcessError(f"a value would have more than {MAX_CHARACTERS:,} characters")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Adds the counting to each loop and macro."""
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = _call("counted", loop.lineno, loop.iter)
        for macro in tree.find_all(nodes.Macro):
            macro.body.insert(
                0, nodes.ExprStmt(_call("step", macro.lineno, nodes.Const(_MACRO_STEPS)), lineno=macro.lineno)
            )
        return tree


def compile_template(sandbox: Sandbox, source: str) -> Template:
    """Raises ``TemplateError`` with the line for a template that doesn't parse."""
    try:
        code = sandbox.compile(source, filename=_FILE)
        return Template.from_code(sandbox, code, sandbox.make_globals(None))
    except TemplateSyntaxError as error:
        raise TemplateError(
            f"the model's chat template is broken at line {error.lineno}: {error.message}; give a corrected template"
        ) from None
    except Exception as error:
        raise TemplateError(
            f"the model's chat template can't be compiled: {error}; give a corrected template"
        ) from error


def parse_template(sandbox: Sandbox, source: str) -> nodes.Template:
    """The syntax tree of a template that compiles."""
    return sandbox.parse(source)


def render(sandbox: Sandbox, template: Template, variables: Mapping[str, Any]) -> str:
    """Raises ``TemplateError`` if the template refuses the messages, fails on them, or does too much."""
    sandbox.steps = 0
    pieces: list[str] = []
    length = 0
    try:
        for piece in template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > MAX_CHARACTERS:
                raise ExcessError(f"its text has more than {MAX_CHARACTERS:,} characters")
    except RefusalError as refusal:
        raise TemplateError(f"the model's chat template refuses these messages: {refusal}") from None
    except ExcessError as excess:
        raise TemplateError(f"the model's chat template was stopped{_line(excess.__traceback__)}: {excess}") from None
    except RecursionError as error:
        raise TemplateError(f"the model's chat template calls itself without end{_line(error.__traceback__)}") from None
    # A template is foreign code: whatever it raises is its failure on these messages, and none of ours.
    except Exception as error:
        raise TemplateError(
            f"the model's chat template fails on these messages{_line(error.__traceback__)}: "
            f"{type(error).__name__}: {error}; check the messages' fields, or give another template"
        ) from None
    return "".join(pieces)


def _refuse(message: object = "") -> NoReturn:
    raise RefusalError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As templates are trained with it: Unicode kept, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _call(name: str, line: int, argument: nodes.Node) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name, lineno=line), [argument], [], None, None, lineno=line)


def _result_size(operator: str, left: Any, right: Any) -> int:
    """Characters, items or bits of what an operation gives; 0 where it can't grow."""
    sizes = [len(value) if isinstance(value, str | list | tuple) else 0 for value in (left, right)]
    if operator == "+":
        return sum(sizes) if all(sizes) else 0
    if not (isinstance(left, int) or isinstance(right, int)):
        return 0
    if any(sizes):
        return abs(right) * sizes[0] if isinstance(right, int) else abs(left) * sizes[1]
    if not (isinstance(left, int) and isinstance(right, int)):
        return 0
    return left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()


def _line(trace: TracebackType | None) -> str:
    """Where in the template it happened, as far as the traceback tells."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" at line {line}" if line else ""
