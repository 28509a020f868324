"""Continues a prompt by a grammar, or without one: ``count`` tokens, however often the grammar ends before."""

import time

from inferlet import Context
from inferlet.grammar import Grammar


async def main(input: dict) -> dict:
    context, made = Context(), 0
    context.fill(input["prompt"])
    grammar = Grammar.json_schema(input["schema"]) if "schema" in input else None
    options = {"stop_tokens": (), "grammar": grammar, "logprobs": input.get("logprobs")}
    await context.generate_until(max_tokens=1, **options)  # the prompt itself
    began = time.perf_counter()
    while made < input["count"]:
        await context.generate_until(max_tokens=input["count"] - made, **options)
        made += len(context.last.tokens)
    return {"seconds": time.perf_counter() - began, "tokens": made}
