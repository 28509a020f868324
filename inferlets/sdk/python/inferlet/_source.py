"""A user's source file on its way to code."""

from __future__ import annotations

import linecache
from types import CodeType

from inferlet import _compiled, _program


def compile_file(path: str, text: str) -> CodeType:
    """Code whose tracebacks show the user's lines. Raises SyntaxError, also for what is too much for the compiler."""
    known = _compiled.find(text)
    shown = path if known is None else known.co_filename
    _program.files.update((path, shown))
    linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
    if known is not None:
        return known
    try:
        return compile(text, path, "exec", dont_inherit=True)
    except (MemoryError, RecursionError) as error:
        if not error.args:
            raise  # memory did run out
        refused = SyntaxError(f"too deeply nested for Python's compiler ({error}); write it in smaller pieces")
        refused.filename = path
        raise refused from None
