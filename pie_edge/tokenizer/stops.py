"""Which tokens end a turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# fmt: off
END_MARKERS = frozenset(
    {
        "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|im_end|>",
        "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>", "<turn|>",
        "<|tool_response>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>",
        "<|endofturn|>", "[|endofturn|]", "<end_of_utterance>", "<｜end▁of▁sentence｜>"
    }
)
# fmt: on
"""Control tokens that end what a model says, over the known families."""

# In OpenAI's harmony format (and Solar's) <|end|> closes one message and the turn goes on; these end it.
_TURN_GOES_ON = (({"<|return|>", "<|call|>"}, "<|end|>"), ({"<|flush|>", "<|calls|>"}, "<|end|>"))


def stop_tokens(control: Mapping[str, int], declared: Iterable[int | None]) -> frozenset[int]:
    """The declared ends (eos, eot, …) and every control token of the vocabulary that is known to end a turn."""
    stops = {token for text, token in control.items() if text in END_MARKERS}
    for enders, closer in _TURN_GOES_ON:
        if enders <= control.keys() and closer in control:
            stops.discard(control[closer])
    return frozenset(stops | {token for token in declared if token is not None})
