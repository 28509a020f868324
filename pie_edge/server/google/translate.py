"""A body of Google's as a ``Request``."""

from __future__ import annotations

import json
import re
from typing import Any

from pie_edge.errors import UsageError
from pie_edge.server.generation import Card, Constraint, Conversation, Request, Sampling
from pie_edge.server.google.request import Body, FunctionDeclaration, GenerationConfig
from pie_edge.server.google.schema import Schema, json_schema
from pie_edge.server.google.turns import conversation
from pie_edge.server.thinking import thinking

_SAID_OF_ENUMS = frozenset({"type", "enum", "title", "description", "default", "examples"})
_SEEDS = 2**32
"""Google's are signed, ours are not."""


def prompt(body: Body, card: Card) -> Conversation:
    """What the model reads. Raises UsageError naming the field that can't be."""
    config = body.config.thinking_config
    budget = None if config is None else config.thinking_budget
    wish = {None: None, 0: "off", -1: "rather"}.get(budget, "on")
    return Conversation(
        messages=conversation(body.system_instruction, body.contents),
        tools=[_tool(one, strict=_mode(body) == "VALIDATED") for one in _functions(body)],
        thinking=None if wish is None else thinking(wish, card, "thinkingConfig.thinkingBudget"),  # type: ignore[arg-type]
    )


def request(body: Body, card: Card) -> Request:
    config = body.config
    if config.logprobs is not None and not config.response_logprobs:
        raise UsageError("generationConfig.logprobs: it says how many are reported where responseLogprobs is true")
    if _mode(body) == "VALIDATED" and _constraint(config) is not None:
        raise UsageError(
            "toolConfig.functionCallingConfig.mode: an answer is held to a responseMimeType or to validated calls, not to "
            "both; use AUTO"
        )
    budget = None if config.thinking_config is None else config.thinking_config.thinking_budget
    return Request(
        prompt=prompt(body, card),
        choices=config.candidate_count,
        max_tokens=config.max_output_tokens,
        stop=tuple(config.stop_sequences),
        sampling=Sampling(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            presence=config.presence_penalty,
            frequency=config.frequency_penalty,
            seed=None if config.seed is None else config.seed % _SEEDS,
        ),
        logprobs=(config.logprobs or 0) if config.response_logprobs else None,
        tool_choice=_choice(body),
        constraint=_constraint(config),
        thinking_tokens=budget if budget is not None and budget > 0 else None,
    )


def shows_thoughts(body: Body) -> bool:
    config = body.config.thinking_config
    return config is not None and config.include_thoughts


def _functions(body: Body) -> list[FunctionDeclaration]:
    """Those that may be called. The model is told of no others, and of none where none may be."""
    found = [one for tool in body.tools for one in tool.function_declarations]
    names = [one.name for one in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"tools: two functions have the name {', '.join(sorted(twice))}")
    config = None if body.tool_config is None else body.tool_config.function_calling_config
    if config is None or not config.allowed_function_names:
        return [] if _mode(body) == "NONE" else found
    if config.mode not in ("ANY", "VALIDATED"):
        raise UsageError(
            "toolConfig.functionCallingConfig.allowedFunctionNames: they are for the modes ANY and VALIDATED"
        )
    if strange := set(config.allowed_function_names) - set(names):
        raise UsageError(
            f"toolConfig.functionCallingConfig.allowedFunctionNames: {', '.join(sorted(strange))} is none of the tools' "
            f"functions, which are: {', '.join(names) or 'none'}"
        )
    return [one for one in found if one.name in config.allowed_function_names]


def _choice(body: Body) -> str:
    match _mode(body):
        case "NONE":
            return "none"
        case "ANY":
            functions = _functions(body)
            if not functions:
                raise UsageError("toolConfig.functionCallingConfig.mode: ANY needs tools, and there are none")
            return f"function:{functions[0].name}" if len(functions) == 1 else "required"
        case _:
            return "auto"


def _mode(body: Body) -> str:
    config = None if body.tool_config is None else body.tool_config.function_calling_config
    return "AUTO" if config is None else config.mode


def _tool(declared: FunctionDeclaration, *, strict: bool) -> dict[str, Any]:
    """What it gives is its ``return``, as templates know it that write whole tools."""
    name = declared.name
    parameters = _either(name, "parameters", declared.parameters, declared.parameters_json_schema)
    function: dict[str, Any] = {"name": name, "parameters": parameters or {"type": "object", "properties": {}}}
    if declared.description:
        function["description"] = declared.description
    if returned := _either(name, "response", declared.response, declared.response_json_schema):
        function["return"] = returned
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _either(name: str, field: str, own: Schema | None, given: dict[str, Any] | None) -> dict[str, Any] | None:
    if own is not None and given is not None:
        raise UsageError(f"tools: {name} has {field} and {field}JsonSchema; give one of them")
    return given if own is None else json_schema(own)


def _constraint(config: GenerationConfig) -> Constraint | None:
    own, given = config.response_schema, config.response_json_schema
    if own is not None and given is not None:
        raise UsageError("generationConfig: it has responseSchema and responseJsonSchema; give one of them")
    schema: Any = json_schema(own) if own is not None else given
    match config.response_mime_type:
        case "application/json":
            return (
                Constraint("json")
                if schema is None
                else Constraint("json-schema", json.dumps(schema, ensure_ascii=False))
            )
        case "text/x.enum":
            return Constraint("regex", "|".join(map(_escaped, _enumerated(schema))))
        case _ if schema is not None:
            raise UsageError("generationConfig.responseMimeType: a schema needs application/json, or text/x.enum")
    return None


def _enumerated(schema: Any) -> list[str]:
    values = schema.get("enum") if isinstance(schema, dict) else None
    if not isinstance(values, list) or not values or not all(isinstance(value, str) and value for value in values):
        raise UsageError("generationConfig.responseSchema: text/x.enum needs a STRING with an enum of values")
    if (kind := schema.get("type", "string")) != "string":
        raise UsageError(f"generationConfig.responseSchema: text/x.enum needs a STRING, and its type is {kind!r:.80}")
    if more := sorted(schema.keys() - _SAID_OF_ENUMS):
        raise UsageError(
            f"generationConfig.responseSchema: text/x.enum is one of the values of an enum, and {more[0]!r:.80} changes "
            "nothing of it; leave it out"
        )
    return values


def _escaped(text: str) -> str:
    return re.sub(r"[\\.+*?()|\[\]{}^$#&~/-]", lambda found: "\\" + found[0], text)
