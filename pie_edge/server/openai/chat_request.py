"""``POST /v1/chat/completions``: what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pie_edge.errors import UsageError
from pie_edge.server.generation import Card, Constraint, Conversation, Request
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.messages import TAGS, Message, Name, Tool, check_calls, plain, plain_tools, schema_text
from pie_edge.server.openai.parameters import Strict, accepted, refused
from pie_edge.server.openai.sampled import Sampled
from pie_edge.server.thinking import thinking


class Choice(Strict):
    name: Name


class NamedChoice(Strict):
    type: Literal["function"]
    function: Choice


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: list[NamedChoice]


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Literal["none", "auto", "required"] | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")]


class TextFormat(Strict):
    type: Literal["text"]


class ObjectFormat(Strict):
    type: Literal["json_object"]


class Schema(Strict):
    name: Name
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class SchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: Schema


Format = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class TemplateSettings(Strict):
    enable_thinking: bool | None = None


class ChatBody(Sampled):
    messages: list[Message] = Field(min_length=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    max_completion_tokens: int | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=0)
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    response_format: Format | None = None
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: TemplateSettings | None = None
    """Not OpenAI's: what other servers of open models call it."""
    # What makes no difference.
    metadata: dict[str, str] | None = accepted("kept by nobody")
    prediction: Any = accepted("it would only make the answer come sooner")
    prompt_cache_key: str | None = accepted("equal prefixes are found without it")
    prompt_cache_options: Any = accepted("equal prefixes are found without it")
    prompt_cache_retention: str | None = accepted("prefixes stay until pages run out")
    safety_identifier: str | None = accepted("there is one user")
    store: bool | None = accepted("chat completions aren't kept; responses are")
    # What there isn't.
    audio: Any = refused("this server gives text alone")
    function_call: Any = refused("it was replaced by tool_choice")
    functions: Any = refused("they were replaced by tools")
    moderation: Any = refused("nothing is moderated")
    modalities: Any = refused("this server gives text alone", ["text"])
    service_tier: Any = refused("there is one tier", "auto", "default")
    verbosity: Any = refused("the model has no such setting", "medium")
    web_search_options: Any = refused("this server searches nothing; give a tool that does")

    TAGS: ClassVar = TAGS | {"json_object", "json_schema", "allowed_tools", "image_url", "input_audio", "file"}
    NOTES: ClassVar[Mapping[str, str]] = {
        **Sampled.NOTES,
        "logprobs": "log-softmax of the raw logits, before sampling changes anything",
        "max_tokens": "as `max_completion_tokens`",
        "messages": "text alone; `name` is given to the chat template, and few have a place for it; an assistant's "
        "`reasoning_content` too",
        "parallel_tool_calls": "`false` ends the answer after the first call",
        "reasoning_effort": "`none` has the model answer at once, `medium` has it think; it has no other grades",
        "response_format": "enforced, whether `strict` or not; after the reasoning of models that think",
        "tool_choice": "all of OpenAI's",
        "tools": "functions",
        "chat_template_kwargs": "not OpenAI's; `enable_thinking`",
    }

    def request(self, card: Card) -> Request:
        """Raises BadRequest for parameters that don't go together, or not with the model."""
        choice, tools = chosen_tools(self.tool_choice, plain_tools(self.tools), card)
        messages = plain(self.messages)
        answers = [f"messages[{n}].tool_call_id" for n, one in enumerate(messages) if one["role"] == "tool"]
        calls = [
            f"messages[{n}].tool_calls[{number}].function.arguments"
            for n, one in enumerate(messages)
            for number in range(len(one.get("tool_calls") or ()))
        ]
        check_calls(messages, "messages", answers, calls)
        return Request(
            prompt=Conversation(messages, tools, self._thinking(card)),
            choices=self.n or 1,
            max_tokens=self._limit(),
            stop=self.stops(),
            sampling=self.sampling(),
            logprobs=self._logprobs(),
            tool_choice=choice,
            parallel_calls=self.parallel_tool_calls is not False,
            constraint=self._constraint(),
            ignore_stop_tokens=bool(self.ignore_eos),
        )

    def _limit(self) -> int | None:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise BadRequest("max_tokens and max_completion_tokens are one parameter; give one of them", "max_tokens")
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens

    def _logprobs(self) -> int | None:
        if self.top_logprobs is not None and not self.logprobs:
            raise BadRequest("top_logprobs needs logprobs: true", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    def _thinking(self, card: Card) -> bool | None:
        own = None if self.chat_template_kwargs is None else self.chat_template_kwargs.enable_thinking
        effort = graded(self.reasoning_effort, "reasoning_effort")
        if own is not None and effort is not None and own != effort:
            raise BadRequest("reasoning_effort and enable_thinking contradict each other", "reasoning_effort")
        if own is None:
            return switched(effort, card, "reasoning_effort")
        return switched(own, card, "chat_template_kwargs.enable_thinking")

    def _constraint(self) -> Constraint | None:
        match self.response_format:
            case ObjectFormat():
                return Constraint("json")
            case SchemaFormat(json_schema=given):
                return Constraint("json-schema", schema_text(given.schema_))
        return None


def graded(effort: str | None, name: str) -> bool | None:
    """Whether the model is to think. Raises BadRequest for a grade that there isn't."""
    if effort not in (None, "none", "medium"):
        raise BadRequest(
            f"{name} is '{effort}', and the model has no such grades; give 'none' for no reasoning, or 'medium'", name
        )
    return None if effort is None else effort == "medium"


def switched(on: bool | None, card: Card, name: str) -> bool | None:
    """As a ``Conversation`` has it. Raises BadRequest where the model does only the opposite."""
    try:
        return None if on is None else thinking("on" if on else "off", card, name)
    except UsageError as error:
        raise BadRequest(error.message, name) from None


def chosen_tools(
    choice: ToolChoice | None, tools: list[dict[str, Any]], card: Card
) -> tuple[str, list[dict[str, Any]]]:
    """As ``Request.tool_choice`` has it, and the tools that may be called. Raises BadRequest for what isn't there."""
    names = {tool["function"]["name"] for tool in tools}
    if len(names) < len(tools):
        raise BadRequest("two tools have the same name", "tools")
    if tools and choice != "none" and card.chat and not card.tools:
        raise BadRequest(
            f"the chat template of {card.name} has no place for tools; describe them in a system message, or serve a model that "
            "calls tools",
            "tools",
        )
    match choice:
        case None | "auto" | "none":
            return choice or "auto", tools
        case NamedChoice():
            _check_there({choice.function.name}, names)
            return f"function:{choice.function.name}", tools
        case AllowedChoice(allowed_tools=allowed):
            wanted = {one.function.name for one in allowed.tools}
            _check_there(wanted, names)
            return allowed.mode, [tool for tool in tools if tool["function"]["name"] in wanted]
    if not tools:
        raise BadRequest(f"tool_choice is '{choice}', and there are no tools", "tool_choice")
    return choice, tools


def _check_there(wanted: set[str], names: set[str]) -> None:
    strange = sorted(wanted - names)
    if strange:
        known = ", ".join(sorted(names)) or "none"
        raise BadRequest(f"tool_choice names '{strange[0]}', and tools has {known}", "tool_choice")
