"""A body of Anthropic's as a ``Request``."""

from __future__ import annotations

import json
from typing import Any

from pie_edge.errors import UsageError
from pie_edge.server.anthropic.request import Body, ChooseNone, ChooseTool, Counted, ThinkingEnabled, Tool
from pie_edge.server.anthropic.turns import conversation
from pie_edge.server.generation import Card, Constraint, Conversation, Request, Sampling
from pie_edge.server.thinking import Wish, thinking


def prompt(body: Counted, card: Card) -> Conversation:
    """What the model reads. Raises UsageError naming the field that can't be."""
    messages, prefill = conversation(body.system, body.messages)
    wish = _wish(body)
    if prefill and wish == "on":
        raise UsageError("messages: an answer that goes on after the assistant's own text has no place for thinking")
    if prefill and _format(body) is not None:
        raise UsageError("messages: the assistant's own text at the end can't be held against output_config.format")
    _check_tools(body)
    if any(tool.strict for tool in body.tools) and _format(body) is not None:
        raise UsageError(
            "tools: an answer is held to output_config.format or to strict tools, not to both; leave strict out"
        )
    return Conversation(
        messages=messages,
        # A model that isn't to call any isn't told of them, and what it reads is counted so.
        tools=[] if isinstance(body.tool_choice, ChooseNone) else [_tool(tool) for tool in body.tools],
        thinking=thinking("off" if prefill else wish, card, "thinking"),
        prefill=prefill,
    )


def request(body: Body, card: Card) -> Request:
    budget = body.thinking.budget_tokens if isinstance(body.thinking, ThinkingEnabled) else None
    if budget is not None and budget >= body.max_tokens:
        raise UsageError(
            f"thinking.budget_tokens is {budget} and max_tokens {body.max_tokens}; thinking counts "
            "among these, so max_tokens must be greater"
        )
    choice, several = _choice(body)
    if budget is not None and choice not in ("auto", "none"):
        raise UsageError("tool_choice: thinking and a call that is forced exclude each other; choose auto or none")
    wanted = _format(body)
    return Request(
        prompt=prompt(body, card),
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences),
        sampling=Sampling(temperature=body.temperature, top_p=body.top_p, top_k=body.top_k),
        tool_choice=choice,
        parallel_calls=several,
        constraint=None if wanted is None else Constraint("json-schema", json.dumps(wanted, ensure_ascii=False)),
        thinking_tokens=budget,
    )


def _wish(body: Counted) -> Wish:
    wishes: dict[str, Wish] = {"enabled": "on", "disabled": "off", "adaptive": "rather"}
    return "rather-not" if body.thinking is None else wishes[body.thinking.type]


def _format(body: Counted) -> dict[str, Any] | None:
    inner = None if body.output_config is None else body.output_config.format
    if inner is not None and body.output_format is not None:
        raise UsageError("output_format: it is the earlier name of output_config.format; give one of them")
    found = inner or body.output_format
    return None if found is None else found.schema_


def _check_tools(body: Counted) -> None:
    names = [tool.name for tool in body.tools]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"tools: two of them have the name {', '.join(sorted(twice))}")
    choice = body.tool_choice
    if choice is not None and choice.type != "none" and not names:
        raise UsageError(f"tool_choice: {choice.type!r} needs tools, and there are none")
    if isinstance(choice, ChooseTool) and choice.name not in names:
        raise UsageError(f"tool_choice: there is no tool {choice.name!r}; the tools are: {', '.join(names)}")


def _choice(body: Counted) -> tuple[str, bool]:
    """As a ``Request`` has it, and whether there may be several calls."""
    choice = body.tool_choice
    if choice is None:
        return "auto", True
    if choice.type == "none":
        return "none", True
    several = not choice.disable_parallel_tool_use
    if isinstance(choice, ChooseTool):
        return f"function:{choice.name}", several
    return ("required" if choice.type == "any" else "auto"), several


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}
