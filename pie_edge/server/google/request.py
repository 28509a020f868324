"""The bodies of ``generateContent``, ``streamGenerateContent`` and ``countTokens``. docs/google.md says of each field what
becomes of it; a field that isn't here is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pie_edge.server.google.contents import Content
from pie_edge.server.google.schema import Schema
from pie_edge.server.google.wire import Whole, Wire, refuse

_HOSTED_TOOLS = dict.fromkeys(
    (
        *("googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "computerUse", "fileSearch"),
        *("googleMaps", "mcpServers", "retrieval", "enterpriseWebSearch"),
    ),
    "it is a service of Google's; functionDeclarations are what can be called here",
)


class FunctionDeclaration(Wire):
    name: str = Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")
    description: str = ""
    parameters: Schema | None = None
    parameters_json_schema: dict[str, Any] | None = None
    response: Schema | None = None
    response_json_schema: dict[str, Any] | None = None
    behavior: Literal["UNSPECIFIED", "BLOCKING"] | None = None


class Tool(Wire):
    function_declarations: list[FunctionDeclaration] = Field(default_factory=list)


def _known_tool(tool: Any) -> Any:
    return refuse(tool, _HOSTED_TOOLS)


class FunctionCallingConfig(Wire):
    mode: Literal["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"] = "MODE_UNSPECIFIED"
    allowed_function_names: list[str] = Field(default_factory=list)


class ToolConfig(Wire):
    function_calling_config: FunctionCallingConfig | None = None


class ThinkingConfig(Wire):
    include_thoughts: bool = False
    thinking_budget: Whole | None = Field(None, ge=-1)
    """0 has the model not think, −1 leaves it to the model."""


class GenerationConfig(Wire):
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Whole | None = Field(None, ge=1, lt=2**31)
    candidate_count: Whole = Field(1, ge=1, le=8)
    max_output_tokens: Whole | None = Field(None, ge=1)
    stop_sequences: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    seed: Whole | None = Field(None, ge=-(2**31), lt=2**31)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    response_logprobs: bool = False
    logprobs: Whole | None = Field(None, ge=0, le=20)
    response_mime_type: Literal["text/plain", "application/json", "text/x.enum"] = "text/plain"
    response_schema: Schema | None = None
    response_json_schema: dict[str, Any] | bool | None = None
    response_modalities: list[Literal["TEXT", "MODALITY_UNSPECIFIED"]] | None = None
    thinking_config: ThinkingConfig | None = None


class SafetySetting(Wire):
    """Taken and without effect: there is no filter here that it could set."""

    category: str
    threshold: str


class Body(Wire):
    contents: list[Content] = Field(min_length=1)
    system_instruction: Content | None = None
    tools: list[Annotated[Tool, BeforeValidator(_known_tool)]] = Field(default_factory=list)
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None
    safety_settings: list[SafetySetting] = Field(default_factory=list)
    model: str | None = None
    """The path's, again."""

    @property
    def config(self) -> GenerationConfig:
        return self.generation_config or GenerationConfig.model_validate({})


class CountBody(Wire):
    contents: Annotated[list[Content], Field(min_length=1)] | None = None
    generate_content_request: Body | None = None
