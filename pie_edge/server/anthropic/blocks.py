"""What messages consist of: blocks of text, thinking, and tools' calls and results. Blocks of other kinds are refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_BLOCKS = ("text", "thinking", "tool_use", "tool_result")


class Strict(BaseModel):
    """Fields that it doesn't have, and values of other types, are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CacheControl(Strict):
    """Prefixes are cached whether or not a request marks them, for as long as there is room."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


def _as_blocks(content: Any) -> Any:
    """Text by itself is short for one block of it."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _known(block: Any) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(kind, str) and kind not in _BLOCKS:
        raise ValueError(f"blocks of type {kind!r} can't be read here, only those of type {', '.join(_BLOCKS)}")
    return block


def _no_other(block: Any) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(kind, str) and kind != "text":
        raise ValueError(f"blocks of type {kind!r} can't be read here, only text")
    return block


class TextBlock(Strict):
    type: Literal["text"]
    text: str = Field(min_length=1)
    cache_control: CacheControl | None = None
    citations: Annotated[list[Any], Field(max_length=0)] | None = None
    """There are none: documents aren't taken."""


class ThinkingBlock(Strict):
    """An earlier answer's, unchanged."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class DirectCaller(Strict):
    type: Literal["direct"]


class ToolUseBlock(Strict):
    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: DirectCaller | None = None
    toolset_name: None = None


Texts = Annotated[
    list[Annotated[TextBlock, BeforeValidator(_no_other)]],
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[TextBlock]),
]


class ToolResultBlock(Strict):
    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Texts = Field(default_factory=list)
    is_error: bool = False
    cache_control: CacheControl | None = None
    toolset_name: None = None


Block = Annotated[
    Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")],
    BeforeValidator(_known),
]


class Message(Strict):
    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], BeforeValidator(_as_blocks, json_schema_input_type=str | list[Block])]
