"""What is said in an agent's dialogue, by the number of the call: the same for an inferlet and for a client.

A small model can't be relied on to call tools, so what it writes is taken as it comes, and which call follows is settled here.
"""


def search(call: int) -> dict:
    """What a ReACT agent asks its tool."""
    return {"call": call, "query": f"price of item {call}"}


def found(call: int) -> str:
    """What the tool answers."""
    return f"Item {call} costs {call * 37 % 101} coins."


def observed(text: str) -> str:
    return f"\nObservation: {text}\nThought:"


def answered(text: str) -> str:
    """The answer of a function."""
    return f" {text}\n"


def code(call: int) -> str:
    """What a CodeACT agent runs."""
    return f"({call} * 37 + 11) * (5 + {call} % 7) % 101"


def run(source: str) -> str:
    """What the code gives; it is arithmetic, and finds nothing to call."""
    return str(eval(source, {"__builtins__": {}}))


def printed(call: int, value: str) -> str:
    return f"\nOutput {call}: {value}\nThought:"


def heard(text: str) -> str:
    """What another agent has said."""
    return f"\nThe other says: {' '.join(text.split())}\nReply:"
