"""Sources on their way to code, in the SDK."""

from __future__ import annotations

import pytest

from tests.support import sdk_parts  # noqa: F401  (it puts the SDK on the path)

from inferlet import _compiled, _program  # isort: skip
from inferlet._source import compile_file  # isort: skip


def test_a_source_that_was_compiled_before_is_taken_as_it_is_and_an_edited_one_isn_t(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_compiled, "_codes", {})
    monkeypatch.setattr(_program, "files", set())
    _compiled.add({"built-in/main.py": "def main(): raise KeyError(1)\n"})
    known, edited = (
        compile_file("/copy/main.py", f"def main(): raise {kind}(1)\n") for kind in ("KeyError", "ValueError")
    )
    assert (known.co_filename, edited.co_filename) == ("built-in/main.py", "/copy/main.py")
    # Tracebacks show frames of both.
    assert _program.files == {"built-in/main.py", "/copy/main.py"}
    names: dict[str, object] = {}
    exec(known, names)
    with pytest.raises(KeyError):
        names["main"]()  # type: ignore[operator]
