"""Messages of Anthropic's shape as a ``Conversation`` has them: a result of a tool is a message of its own, and an assistant's
message at the end is a prefill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pie_edge.errors import UsageError
from pie_edge.server.anthropic.blocks import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from pie_edge.server.anthropic.signature import is_signed


def conversation(system: Sequence[TextBlock], given: Sequence[Message]) -> tuple[list[dict[str, Any]], str]:
    """The messages, and what the model's own turn begins with. Raises UsageError naming what makes no conversation."""
    turns = list(_merged(given))
    prefill = _prefill(turns.pop()[1]) if turns[-1][0] == "assistant" else ""
    messages = [{"role": "system", "content": _content(system)}] if system else []
    called: list[ToolUseBlock] = []
    for role, blocks in turns:
        called = _check_calls(role, blocks, called)
        messages += _assistant(blocks) if role == "assistant" else _others(role, blocks, called)
        called = [block for block in blocks if isinstance(block, ToolUseBlock)]
    if called:
        raise UsageError(f"messages: {_unanswered(called)}")
    return messages, prefill


def _merged(messages: Sequence[Message]) -> Iterator[tuple[str, list[Block]]]:
    """One turn of what one side says in several messages."""
    role = ""
    blocks: list[Block] = []
    for message in messages:
        if message.role != role and blocks:
            yield role, blocks
            blocks = []
        role = message.role
        blocks = blocks + message.content
    yield role, blocks


def _check_calls(role: str, blocks: Sequence[Block], called: list[ToolUseBlock]) -> list[ToolUseBlock]:
    """The calls that this turn has to answer. Raises UsageError if it doesn't, or answers others."""
    answered = {block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)}
    if strange := answered - {call.id for call in called}:
        raise UsageError(
            f"messages: tool_result for {', '.join(sorted(strange))}, which the assistant's message right before it "
            "doesn't call with a tool_use"
        )
    if left := [call for call in called if call.id not in answered]:
        raise UsageError(f"messages: {_unanswered(left)}")
    if role != "assistant" and any(isinstance(block, ThinkingBlock | ToolUseBlock) for block in blocks):
        raise UsageError(f"messages: only the assistant thinks and calls tools, and a message of the {role}'s does")
    if role != "user" and answered:
        raise UsageError(f"messages: results of tools come from the user, and a message of the {role}'s has some")
    return called


def _unanswered(calls: Sequence[ToolUseBlock]) -> str:
    ids = ", ".join(call.id for call in calls)
    return f"the tool_use {ids} has no tool_result in the user's message right after it"


def _assistant(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    if calls and isinstance(blocks[-1], TextBlock):
        raise UsageError("messages: text stands after a tool_use in the assistant's message; put it before")
    message: dict[str, Any] = {"role": "assistant"}
    if thoughts := [_checked(block) for block in blocks if isinstance(block, ThinkingBlock)]:
        message["reasoning_content"] = "".join(thoughts)
    texts = [block for block in blocks if isinstance(block, TextBlock)]
    message["content"] = _content(texts) if texts else None if calls else ""
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    return [message]


def _others(role: str, blocks: Sequence[Block], called: Sequence[ToolUseBlock]) -> list[dict[str, Any]]:
    names = {call.id: call.name for call in called}
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    if not all(isinstance(block, ToolResultBlock) for block in blocks[: len(results)]):
        raise UsageError("messages: a tool_result stands after text in the user's message; put the results first")
    messages = [_result(block, names[block.tool_use_id]) for block in results]
    texts = [block for block in blocks if isinstance(block, TextBlock)]
    if texts or not results:
        messages.append({"role": role, "content": _content(texts)})
    return messages


def _content(blocks: Sequence[TextBlock]) -> str | list[dict[str, str]]:
    if len(blocks) <= 1:
        return "".join(block.text for block in blocks)
    return [{"type": "text", "text": block.text} for block in blocks]


def _checked(block: ThinkingBlock) -> str:
    if not is_signed(block.thinking, block.signature):
        raise UsageError(
            "messages: the signature of a thinking block isn't that of its thinking; give it back unchanged, or leave it out"
        )
    return block.thinking


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _result(block: ToolResultBlock, name: str) -> dict[str, Any]:
    """No chat template knows of errors: the text says so."""
    content = _content(block.content)
    if block.is_error:
        content = f"Error: {content}" if isinstance(content, str) else [{"type": "text", "text": "Error:"}, *content]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "name": name, "content": content}


def _prefill(blocks: Sequence[Block]) -> str:
    text = ""
    for block in blocks:
        if not isinstance(block, TextBlock):
            raise UsageError(
                f"messages: the last message is the assistant's and has a {block.type}; an answer can only go on after text"
            )
        text += block.text
    if text != text.rstrip():
        raise UsageError(
            "messages: the last message is the assistant's and ends with white space; leave that to the answer"
        )
    return text
