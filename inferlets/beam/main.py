"""Continues a prompt with beam search: the likeliest continuations as a whole, each with its score.

pie-edge run inferlets/beam/main.py -- --prompt "The capital of France is" --width 4 --max_tokens 12
"""

from inferlet import Context, beam_search, model


async def main(input: dict) -> list:
    context = Context(model)
    context.fill(input["prompt"])
    beams = await beam_search(context, width=int(input.get("width", 4)), max_tokens=int(input.get("max_tokens", 12)))
    return [{"text": beam.text, "logprob": beam.logprob, "score": beam.score} for beam in beams]
