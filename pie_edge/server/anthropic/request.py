"""The bodies of ``/v1/messages`` and ``/v1/messages/count_tokens``. docs/anthropic.md says of each field what becomes of it; a
field that isn't here is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pie_edge.server.anthropic.blocks import CacheControl, Message, Strict, Texts

TAGS = frozenset(
    {"text", "thinking", "tool_use", "tool_result", "enabled", "disabled", "adaptive", "auto", "any", "none"}
)
"""Of blocks and choices, as places in a body name them."""


def _custom(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "custom":
        raise ValueError(
            f"tools of type {kind!r} are those of Anthropic's own models; describe it with a name and an input_schema"
        )
    return tool


class Tool(Strict):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input_schema: dict[str, Any]
    description: str = ""
    type: Literal["custom"] | None = None
    strict: bool = False
    cache_control: CacheControl | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    defer_loading: Literal[False] = False
    eager_input_streaming: bool | None = None
    """Arguments are streamed as they come, always."""


class ThinkingEnabled(Strict):
    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1)
    display: Literal["summarized"] | None = None
    """Thinking is shown whole."""


class ThinkingDisabled(Strict):
    type: Literal["disabled"]


class ThinkingAdaptive(Strict):
    type: Literal["adaptive"]
    display: Literal["summarized"] | None = None


class ChooseAuto(Strict):
    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool = False


class ChooseNone(Strict):
    type: Literal["none"]


class ChooseTool(Strict):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class JsonFormat(Strict):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Strict):
    format: JsonFormat | None = None


class Metadata(Strict):
    user_id: str | None = None


Thinking = Annotated[ThinkingEnabled | ThinkingDisabled | ThinkingAdaptive, Field(discriminator="type")]
ToolChoice = Annotated[ChooseAuto | ChooseNone | ChooseTool, Field(discriminator="type")]


class Counted(Strict):
    """What a model reads: the body of ``count_tokens``."""

    model: str
    messages: list[Message] = Field(min_length=1, max_length=100_000)
    system: Texts = Field(default_factory=list)
    tools: list[Annotated[Tool, BeforeValidator(_custom)]] = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None
    """The earlier name of ``output_config.format``."""
    cache_control: CacheControl | None = None
    speed: Literal["standard"] | None = None


class Body(Counted):
    max_tokens: int = Field(ge=1)
    stream: bool = False
    stop_sequences: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31)
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
