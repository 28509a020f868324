"""Writes the tables of docs/openai.md, which follow from the declared parameters: ``python -m tests.support.openai_page``."""

from __future__ import annotations

from pathlib import Path

from pie_edge.server.openai.chat_request import ChatBody
from pie_edge.server.openai.completions_request import CompletionsBody
from pie_edge.server.openai.embeddings import EmbeddingsBody
from pie_edge.server.openai.parameters import Parameters
from pie_edge.server.openai.responses_request import ResponsesBody

PAGE = Path(__file__).resolve().parents[2] / "docs" / "openai.md"
ENDPOINTS: dict[str, type[Parameters]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionsBody,
    "/v1/responses": ResponsesBody,
    "/v1/embeddings": EmbeddingsBody,
}


def table(kind: type[Parameters]) -> str:
    """A row of each parameter: honoured ones first, then those that make no difference, then those that are refused."""
    rows: dict[str, list[str]] = {"honoured": [], "accepted": [], "refused": []}
    for name, field in sorted(kind.model_fields.items()):
        mark = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if "x-refused" in mark:
            neutral = mark["x-neutral"]
            values = [f"`{value}`" for value in neutral] if isinstance(neutral, list) else []
            but = f", but for {' and '.join(values)}" if values else ""
            rows["refused"].append(f"| `{name}` | refused{but}: {mark['x-refused']} |")
        elif "x-accepted" in mark:
            rows["accepted"].append(f"| `{name}` | makes no difference: {mark['x-accepted']} |")
        else:
            told = kind.NOTES.get(name, "as in OpenAI's API")
            rows["honoured"].append(f"| `{name}` | {told} |")
    return "\n".join(line for part in rows.values() for line in part) + "\n"


def page(text: str) -> str:
    """With the tables as they should be."""
    for path, kind in ENDPOINTS.items():
        head = f"| `POST {path}` | |\n|---|---|\n"
        before, found, after = text.partition(head)
        if not found:
            raise ValueError(f"{PAGE} has no table of {path}")
        lines = after.splitlines(keepends=True)
        rest = next(number for number, line in enumerate(lines) if not line.startswith("|"))
        text = before + head + table(kind) + "".join(lines[rest:])
    return text


def write() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
