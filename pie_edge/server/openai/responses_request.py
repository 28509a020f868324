"""``POST /v1/responses``: what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from pie_edge.server.generation import Card, Constraint, Sampling
from pie_edge.server.openai import chat_request, items
from pie_edge.server.openai.chat_request import ObjectFormat, TextFormat, graded, switched
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.items import Input
from pie_edge.server.openai.messages import Name, Schema, schema_text
from pie_edge.server.openai.parameters import Parameters, Strict, accepted, refused
from pie_edge.server.openai.sampled import nucleus

LOGPROBS = "message.output_text.logprobs"
_INCLUDES = Literal["message.output_text.logprobs"]


class FunctionTool(Strict):
    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class NamedChoice(Strict):
    type: Literal["function"]
    name: Name


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedChoice]


class SchemaFormat(Strict):
    type: Literal["json_schema"]
    name: Name
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


Format = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class TextSettings(Strict):
    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningSettings(Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: None = None


class StreamOptions(Strict):
    include_obfuscation: bool | None = None


class OtherTool(Strict):
    """Known to the API, and refused with a word why."""

    model_config = Strict.model_config | {"extra": "allow"}
    type: str = Field(json_schema_extra={"not": {"const": "function"}})


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "function" if kind == "function" else "other"


Tool = Annotated[Annotated[FunctionTool, Tag("function")] | Annotated[OtherTool, Tag("other")], Discriminator(_kind)]
ToolChoice = Literal["none", "auto", "required"] | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")]


class ResponsesBody(Parameters):
    model: str
    input: Input | None = None
    include: list[_INCLUDES] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    reasoning: ReasoningSettings | None = None
    store: bool | None = None
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    text: TextSettings | None = None
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    top_p: float | None = Field(None, ge=0, le=1)
    truncation: Literal["auto", "disabled"] | None = None
    # What makes no difference.
    max_tool_calls: int | None = accepted("it counts calls that the server makes itself, and it makes none")
    prompt_cache_key: str | None = accepted("equal prefixes are found without it")
    prompt_cache_options: Any = accepted("equal prefixes are found without it")
    prompt_cache_retention: str | None = accepted("prefixes stay until pages run out")
    safety_identifier: str | None = accepted("there is one user")
    stream_options: StreamOptions | None = accepted("`include_obfuscation` pads events")
    user: str | None = accepted("there is one user")
    # What there isn't.
    access_programs: Any = refused("there are none")
    background: Any = refused("an answer is made while its client waits", False)
    background_options: Any = refused("an answer is made while its client waits")
    context_management: Any = refused("use truncation")
    conversation: Any = refused("use previous_response_id")
    image: Any = refused("this server reads and gives text alone")
    moderation: Any = refused("nothing is moderated")
    prompt: Any = refused("there are no stored prompts")
    service_tier: Any = refused("there is one tier", "auto", "default")

    TAGS: ClassVar = items.TAGS | {"function", "text", "json_object", "json_schema", "allowed_tools"}
    NOTES: ClassVar[Mapping[str, str]] = {
        "include": f"`{LOGPROBS}`",
        "input": "text, or items: messages of text, function calls, their outputs, reasoning",
        "instructions": "not carried over to a response that follows",
        "metadata": "given back with the response",
        "model": "the one that is served",
        "parallel_tool_calls": "`false` ends the answer after the first call",
        "previous_response_id": "of a stored response, for as long as it is kept",
        "reasoning": "`effort`: `none` or `medium`; `summary`: `auto`, and as the reasoning itself is given, there is none",
        "store": "true unless it is false",
        "text": "`format`: enforced; `verbosity`: `medium`",
        "tool_choice": "`none`, `auto`, `required`, a function, `allowed_tools`",
        "tools": "functions",
        "top_logprobs": f"with `{LOGPROBS}` in `include`",
        "truncation": "`auto` leaves out the oldest messages of a conversation that is too long",
    }

    def check(self) -> None:
        super().check()
        if self.input is None:
            raise BadRequest("Missing required parameter: 'input'.", "input", "missing_required_parameter")
        for number, tool in enumerate(self.tools or ()):
            if isinstance(tool, OtherTool):
                raise BadRequest(
                    f"a tool of type '{tool.type}' was given, and this server has none; give functions",
                    f"tools[{number}].type",
                    "unsupported_parameter",
                )
        if self.top_logprobs and LOGPROBS not in (self.include or ()):
            raise BadRequest(f"top_logprobs needs '{LOGPROBS}' in include", "top_logprobs")
        if self.text is not None and self.text.verbosity not in (None, "medium"):
            raise BadRequest("the model has no verbosity but 'medium'", "text.verbosity", "unsupported_parameter")
        if self.reasoning is not None and self.reasoning.summary not in (None, "auto"):
            raise BadRequest(
                "the reasoning is given itself, and no summary of it", "reasoning.summary", "unsupported_parameter"
            )

    @property
    def stored(self) -> bool:
        return self.store is not False

    def thinks(self, card: Card) -> bool | None:
        """As a ``Conversation`` has it. Raises BadRequest."""
        name = "reasoning.effort"
        return None if self.reasoning is None else switched(graded(self.reasoning.effort, name), card, name)

    @property
    def logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if LOGPROBS in (self.include or ()) else None

    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=nucleus(self.top_p))

    def constraint(self) -> Constraint | None:
        match None if self.text is None else self.text.format:
            case ObjectFormat():
                return Constraint("json")
            case SchemaFormat(schema_=schema):
                return Constraint("json-schema", schema_text(schema))
        return None

    def chat_tools(self) -> list[dict[str, Any]]:
        """As chat completions have them."""
        return [
            {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
            for tool in self.tools or ()
        ]

    def chosen_tools(self, card: Card) -> tuple[str, list[dict[str, Any]]]:
        """As ``Request.tool_choice`` has it, and the tools that may be called. Raises BadRequest for what isn't there."""
        return chat_request.chosen_tools(_as_chat(self.tool_choice), self.chat_tools(), card)

    def shown_settings(self, recommended: Mapping[str, float]) -> dict[str, Any]:
        """What a response repeats of its request. ``recommended`` are settings of those that leave them open."""
        text = (
            {"format": {"type": "text"}}
            if self.text is None
            else self.text.model_dump(by_alias=True, exclude_none=True)
        )
        choice = self.tool_choice
        return {
            "background": False,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "reasoning": {"effort": None if self.reasoning is None else self.reasoning.effort, "summary": None},
            "service_tier": "default",
            "store": self.stored,
            "temperature": recommended.get("temperature", 1.0) if self.temperature is None else self.temperature,
            "text": {"format": {"type": "text"}} | text,
            "tool_choice": "auto" if choice is None else choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [tool.model_dump() for tool in self.tools or ()],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": recommended.get("top_p", 1.0) if self.top_p is None else self.top_p,
            "truncation": self.truncation or "disabled",
            "user": self.user,
        }


def _as_chat(choice: ToolChoice | None) -> chat_request.ToolChoice | None:
    """As chat completions have it."""
    match choice:
        case NamedChoice():
            return _named(choice)
        case AllowedChoice():
            allowed = chat_request.AllowedTools(mode=choice.mode, tools=[_named(tool) for tool in choice.tools])
            return chat_request.AllowedChoice(type="allowed_tools", allowed_tools=allowed)
    return choice


def _named(choice: NamedChoice) -> chat_request.NamedChoice:
    return chat_request.NamedChoice(type="function", function=chat_request.Choice(name=choice.name))
