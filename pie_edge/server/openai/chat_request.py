"""``POST /v1/chat/completions``: what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from pie_edge.server.generation import Constraint, Conversation, Request, Sampling
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.messages import TAGS, Message, Name, Tool, plain, plain_tools, schema_text
from pie_edge.server.openai.parameters import Parameters, Strict, accepted, refused

Stop = Annotated[str, StringConstraints(min_length=1)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
MOST_CHOICES = 128


class Choice(Strict):
    name: Name


class NamedChoice(Strict):
    type: Literal["function"]
    function: Choice


class AllowedFunction(Strict):
    type: Literal["function"]
    function: Choice


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: list[AllowedFunction]


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


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TemplateSettings(Strict):
    enable_thinking: bool | None = None


class ChatBody(Parameters):
    messages: list[Message] = Field(min_length=1)
    model: str
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    max_completion_tokens: int | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=0)
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    parallel_tool_calls: bool | None = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    response_format: Format | None = None
    seed: Seed | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    top_p: float | None = Field(None, ge=0, le=1)
    # Beyond OpenAI's, under the names that other servers of open models have for them.
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    ignore_eos: bool | None = None
    chat_template_kwargs: TemplateSettings | None = None
    # What makes no difference.
    metadata: dict[str, str] | None = accepted("kept by nobody")
    prediction: Any = accepted("it would only make the answer come sooner")
    prompt_cache_key: str | None = accepted("equal prefixes are found without it")
    prompt_cache_retention: str | None = accepted("prefixes stay until pages run out")
    safety_identifier: str | None = accepted("there is one user")
    store: bool | None = accepted("chat completions aren't kept; responses are")
    user: str | None = accepted("there is one user")
    # What there isn't.
    audio: Any = refused("this server gives text alone")
    function_call: Any = refused("it was replaced by tool_choice")
    functions: Any = refused("they were replaced by tools")
    modalities: Any = refused("this server gives text alone", ["text"])
    service_tier: Any = refused("there is one tier", "auto", "default")
    verbosity: Any = refused("the model has no such setting", "medium")
    web_search_options: Any = refused("this server searches nothing; give a tool that does")

    TAGS: ClassVar = TAGS | {"json_object", "json_schema", "allowed_tools", "image_url", "input_audio", "file"}
    NOTES: ClassVar[Mapping[str, str]] = {
        "logit_bias": "token ids of the model that is served",
        "logprobs": "log-softmax of the raw logits, before sampling changes anything",
        "max_tokens": "as `max_completion_tokens`",
        "messages": "text alone; `name` is given to the chat template; an assistant's `reasoning_content` too",
        "model": "the one that is served",
        "n": f"up to {MOST_CHOICES}; the prompt is read once, and its pages are shared",
        "parallel_tool_calls": "`false` ends the answer after the first call",
        "presence_penalty": "over the tokens of the answer",
        "frequency_penalty": "over the tokens of the answer",
        "reasoning_effort": "`none` has the model answer at once, `medium` has it think; it has no other grades",
        "response_format": "enforced, whether `strict` or not; after the reasoning of models that think",
        "seed": "the same answer each time, alone or beside others; choice i of n draws from a seed of its own",
        "stop": "up to 16; they may span tokens, and nothing of them is shown",
        "stream_options": "`include_usage`; `include_obfuscation` makes no difference",
        "tool_choice": "all of OpenAI's",
        "tools": "functions",
        "top_k": "not OpenAI's",
        "min_p": "not OpenAI's",
        "repetition_penalty": "not OpenAI's; over the tokens of the answer",
        "ignore_eos": "not OpenAI's; the answer ends at `max_tokens` alone",
        "chat_template_kwargs": "not OpenAI's; `enable_thinking`",
    }

    def request(self) -> Request:
        """Raises BadRequest for parameters that don't go together."""
        choice, tools = chosen_tools(self.tool_choice, plain_tools(self.tools))
        return Request(
            prompt=Conversation(plain(self.messages), tools, self._thinking()),
            choices=self.n or 1,
            max_tokens=self._limit(),
            stop=stops(self.stop),
            sampling=self._sampling(),
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

    def _sampling(self) -> Sampling:
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=nucleus(self.top_p),
            top_k=self.top_k,
            min_p=self.min_p,
            presence=self.presence_penalty or 0.0,
            frequency=self.frequency_penalty or 0.0,
            repetition=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            logit_bias=biases(self.logit_bias),
            seed=self.seed,
        )

    def _logprobs(self) -> int | None:
        if self.top_logprobs is not None and not self.logprobs:
            raise BadRequest("top_logprobs needs logprobs: true", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    def _thinking(self) -> bool | None:
        own = None if self.chat_template_kwargs is None else self.chat_template_kwargs.enable_thinking
        effort = thinking(self.reasoning_effort, "reasoning_effort")
        if own is not None and effort is not None and own != effort:
            raise BadRequest("reasoning_effort and enable_thinking contradict each other", "reasoning_effort")
        return effort if own is None else own

    def _constraint(self) -> Constraint | None:
        match self.response_format:
            case ObjectFormat():
                return Constraint("json")
            case SchemaFormat(json_schema=given):
                return Constraint("json-schema", schema_text(given.schema_))
        return None


def thinking(effort: str | None, name: str) -> bool | None:
    if effort not in (None, "none", "medium"):
        raise BadRequest(
            f"{name} is '{effort}', and the model has no such grades; give 'none' for no reasoning, or 'medium'", name
        )
    return None if effort is None else effort == "medium"


def chosen_tools(choice: ToolChoice | None, tools: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """As ``Request.tool_choice`` has it, and the tools that may be called. Raises BadRequest for what isn't there."""
    names = {tool["function"]["name"] for tool in tools}
    if len(names) < len(tools):
        raise BadRequest("two tools have the same name", "tools")
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


def stops(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def nucleus(top_p: float | None) -> float | None:
    """0 keeps the likeliest token."""
    return None if top_p is None else max(top_p, 1e-6)


def biases(given: dict[str, float] | None) -> dict[int, float]:
    found = {}
    for token, bias in (given or {}).items():
        if not token.isascii() or not token.isdigit():
            raise BadRequest(f"logit_bias names '{token}'; it takes token ids", "logit_bias")
        found[int(token)] = bias
    return found
