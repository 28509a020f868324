"""What a conversation of Google's consists of: contents of parts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pie_edge.server.google.wire import Wire, refuse

_OTHER_PARTS = dict.fromkeys(
    (
        *(
            "inlineData",
            "fileData",
            "executableCode",
            "codeExecutionResult",
            "videoMetadata",
            "toolCall",
            "toolResponse",
        ),
        *("mediaResolution", "audioTranscription"),
    ),
    "the model reads text alone; a part is text, a functionCall or a functionResponse",
)


class FunctionCall(Wire):
    name: str = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None


class FunctionResponse(Wire):
    name: str = Field(min_length=1)
    response: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None


class Part(Wire):
    text: str | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    thought: bool = False
    """Whether the text is what the model thought, rather than said."""
    thought_signature: str | None = None
    """Of other models' thoughts, which are of no use to this one."""


def _known_part(part: Any) -> Any:
    return refuse(part, _OTHER_PARTS)


class Content(Wire):
    """``function`` is the earlier name for the user who gives back what functions gave."""

    role: Literal["user", "model", "function"] = "user"
    parts: list[Annotated[Part, BeforeValidator(_known_part)]] = Field(min_length=1)
