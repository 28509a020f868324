"""ReACT (Yao et al., arXiv:2210.03629): the model thinks, asks a tool over HTTP, and reads what came back.

    pie-edge run inferlets/react --allow-http localhost:8000 -- --tool http://localhost:8000/ --question "…"

The tool is asked with GET and the query as `q`. Meanwhile the context stays in the cache, so every token is forwarded once. The
program writes the form and the model fills it in, so that even a small model asks in a way that can be read.
"""

from urllib.parse import quote

from inferlet import Context, errors, http, model, session

TASK = """Answer the question with the help of a search tool.

Question: Which city is the capital of the country where the Eiffel Tower stands?
Thought: I have to find out where the Eiffel Tower stands.
Action: search[Eiffel Tower]
Observation: The Eiffel Tower stands in Paris, the capital of France.
Answer: Paris

Question: {question}
"""


async def main(input: dict) -> dict:
    tool, steps = input["tool"], int(input.get("steps", 2))
    with Context(model) as context:
        context.fill(TASK.format(question=input["question"]))
        queries = []
        for _ in range(steps):
            context.fill("Thought:")
            thought = await context.generate_until(max_tokens=32, stop="\n")
            context.fill("\nAction: search[")
            query = (await context.generate_until(max_tokens=16, stop=["]", "\n"])).strip()
            queries.append(query)
            session.send(f"{thought.strip()} → {query}\n")
            context.fill(f"]\nObservation: {await observe(tool, query)}\n")
        context.fill("Answer:")
        answer = await context.generate_until(max_tokens=32, stop="\n")
        return {"answer": answer.strip(), "queries": queries, "tokens": len(context.tokens)}


async def observe(tool: str, query: str) -> str:
    """What the tool says, in one line; of a failure the model hears, too."""
    try:
        answer = await http.get(f"{tool}?q={quote(query)}", timeout=10)
        answer.raise_for_status()
    except errors.HttpError as error:
        return f"The tool failed: {error}"
    return " ".join(answer.text.split())[:400]
