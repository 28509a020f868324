"""The sandbox of CodeACT agents: whole numbers with + - * % and brackets."""

import ast
import operator

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod}


def run(source: str) -> str:
    """The value of an expression. Raises ValueError for anything but arithmetic."""

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise ValueError(f"{ast.dump(node)} is no arithmetic")

    return str(value(ast.parse(source, mode="eval").body))
