"""What is said in an agent's dialogue, by the number of the call: the same for an inferlet and for a client.

A small model can't be relied on to call tools, so what it writes is taken as it comes, and which call follows is settled here.
"""

import ast
import operator

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod}


def search(call: int) -> dict:
    """What a ReACT agent asks its tool."""
    return {"call": call, "query": f"price of item {call}"}


def found(call: int) -> str:
    """What the tool answers."""
    return f"Item {call} costs {call * 37 % 101} coins."


def observed(text: str) -> str:
    return f"\nObservation: {text}\nThought:"


def code(call: int) -> str:
    """What a CodeACT agent runs."""
    return f"({call} * 37 + 11) * (5 + {call} % 7) % 101"


def run(source: str) -> str:
    """The value of whole numbers with + - * % and brackets; anything else is a ValueError."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"{ast.dump(node)} is no arithmetic")

    return str(value(ast.parse(source, mode="eval").body))


def printed(call: int, value: str) -> str:
    return f"\nOutput {call}: {value}\nThought:"


def heard(text: str) -> str:
    """What another agent has said."""
    return f"\nThe other says: {' '.join(text.split())}\nReply:"
