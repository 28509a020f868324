"""Draws several answers at once, and keeps the one that the model finds the most convincing.

    pie-edge run inferlets/best-of-n/main.py -- --prompt "Name a prime number." --n 4

The answers are forks of one context: its prompt is forwarded once, and they share every step. A judge reads each of them
and is asked for a yes or a no; it doesn't answer, its probabilities are read.
"""

import asyncio
import math

from inferlet import Context, chat, model


def ask(context: Context, question: str) -> None:
    """As a turn of the conversation; as plain text for a model that was never taught to chat."""
    if chat.available():
        context.fill_user(question)
        context.cue()
    else:
        context.fill(f"Question: {question}\nAnswer:")


async def judge(question: str, answer: str) -> float:
    """How much likelier a yes is than a no."""
    with Context(model) as context:
        ask(context, f'Is "{answer.strip()}" a good answer to the question "{question}"? Say Yes or No.')
        yes, no = await context.score(["Yes", "No"])
    return 1 / (1 + math.exp(no - yes))


async def main(input: dict) -> dict:
    context = Context(model)
    ask(context, input["prompt"])
    forks = [context.fork() for _ in range(int(input.get("n", 4)))]
    options = {"temperature": 0.8, "top_p": 0.95, "max_tokens": int(input.get("max_tokens", 48))}
    answers = await asyncio.gather(*(fork.generate_until(**options) for fork in forks))
    scores = await asyncio.gather(*(judge(input["prompt"], answer) for answer in answers))
    ranked = sorted(zip(scores, answers, strict=True), reverse=True)
    return {"text": ranked[0][1], "answers": [{"score": score, "text": text} for score, text in ranked]}
