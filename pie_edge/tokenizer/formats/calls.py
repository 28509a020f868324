"""How the families write calls of tools, one class each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pie_edge.tokenizer.formats.parser import BrokenError, broken, check_name, from_json, to_json
from pie_edge.tokenizer.formats.stream import Wait
from pie_edge.tokenizer.formats.tagged import Tagged

_PYTHON = {"True": True, "False": False, "None": None}


class Hermes(Tagged):
    """``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, and Qwen's form with a tag for each parameter."""

    openers = ("<tool_call>",)
    closers = ("</tool_call>",)

    def read_call(self, marker: str) -> Wait[None]:
        if not (yield from self.passes("<function=")):
            yield from self.json_calls()
            return
        name = yield from self._label()
        yield from self.space()
        arguments: dict[str, Any] = {}
        while not (yield from self.passes("</function>")):
            yield from self.expect("<parameter=")
            key = yield from self._label()
            yield from self.passes("\n")
            if not arguments:
                self.begin(name, None)
            text = yield from self._parameter()
            value = _typed(self.tools.get(name), key, text)
            self.argue("", f"{', ' if arguments else '{'}{to_json(key)}: {to_json(value)}")
            arguments[key] = value
            yield from self.space()
        if not arguments:
            self.begin(name, None)
        self.argue("", "}" if arguments else "{}")
        self.end(name, None, to_json(arguments))

    def _label(self) -> Wait[str]:
        label = ""
        while (character := (yield from self.stream.peek())) not in ("", ">", "\n"):
            label += self.stream.take()
            self.mark(character)
        yield from self.expect(">")
        return check_name(label.strip())

    def _parameter(self) -> Wait[str]:
        parts: list[str] = []

        def read(raw: str) -> None:
            parts.append(raw)
            self.mark(raw)

        end = yield from self.until(self.needles("</parameter>", *self.closers), read)
        if end != "</parameter>":
            if end:
                self.stream.put_back()
            broken("no end of a parameter")
        self.mark(end)
        return "".join(parts).removesuffix("\n")


class JsonList(Tagged):
    """``<|tool_call|>[{"name": …, "arguments": {…}}, …]``, as Granite 3 and Phi-4 mini write it."""

    openers = ("<|tool_call|>",)
    closers = ("<|/tool_call|>",)


class Mistral(Tagged):
    """``[TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}]``, or for each call ``[TOOL_CALLS]name[CALL_ID]id[ARGS]{…}``, in
    which the id and the marker of the arguments may be missing."""

    openers = ("[TOOL_CALLS]",)
    inner = ("[CALL_ID]", "[ARGS]")

    def read_call(self, marker: str) -> Wait[None]:
        if (yield from self.stream.peek()) in ("[", "{"):
            yield from self.json_calls()
            return
        name = check_name((yield from self._label()))
        identity = None
        if (yield from self.passes("[CALL_ID]")):
            identity = yield from self._label()
        yield from self.passes("[ARGS]")
        yield from self.space()
        if (yield from self.stream.peek()) != "{":
            broken("no object")
        self.begin(name, identity)
        self.end(name, identity, (yield from self.json_value(self.argue)))

    def _label(self) -> Wait[str]:
        label = ""
        while (character := (yield from self.stream.peek())) not in ("", "[", "{"):
            label += self.stream.take()
            self.mark(character)
        return label.strip()


class Pythonic(Tagged):
    """``<|tool_call_start|>[weather(city="Oslo")]<|tool_call_end|>``, as LFM2 writes it; JSON too, if it was asked for that."""

    openers = ("<|tool_call_start|>",)
    closers = ("<|tool_call_end|>",)

    def read_call(self, marker: str) -> Wait[None]:
        at = yield from self.after_space(int((yield from self.stream.peek()) == "["))
        if (yield from self.stream.peek(at)) == "{":
            yield from self.json_calls()
        else:
            yield from self.read_python()


class Fenced(Tagged):
    """As Gemma's makers describe it: a fence of ``tool_code`` with Python, one of ``json`` with an object, or just that."""

    openers = ("```tool_code", "```json")
    closers = ("```",)
    bare = True

    def _marked(self, marker: str) -> Wait[str | None]:
        if marker == "```json" and not (yield from self._begins_with_call()):
            self.text(marker)  # just code
            return None
        return (yield from super()._marked(marker))

    def read_call(self, marker: str) -> Wait[None]:
        yield from self.read_python() if marker == "```tool_code" else self.json_calls()

    def _close(self) -> Wait[str | None]:
        yield from self.space()
        yield from self.passes("```")
        yield from self.space()
        return None


class Llama(Tagged):
    """An answer that is ``{"name": …, "parameters": {…}}``, perhaps after ``<|python_tag|>``; after that also Python."""

    openers = ("<|python_tag|>",)
    bare = True

    def read_call(self, marker: str) -> Wait[None]:
        if (yield from self.stream.peek()) in ("[", "{"):
            yield from self.json_calls()
        else:
            yield from self.read_python()

    def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        super().call(name.removesuffix(".call"), arguments)


def _typed(parameters: Any, key: str, text: str) -> Any:
    """The value that the text stands for: of the type that the function declares, or that it looks like."""
    declared = parameters
    for step in ("properties", key, "type"):
        declared = declared.get(step) if isinstance(declared, Mapping) else None
    if declared == "string" or (isinstance(declared, list) and "string" in declared):
        return text
    try:
        return _PYTHON[text] if text in _PYTHON else from_json(text)
    except BrokenError:
        return text
