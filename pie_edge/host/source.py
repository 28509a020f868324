"""An inferlet's source: one Python file, and the modules that lie beside it."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from pie_edge.errors import InferletInvalid


@dataclass(frozen=True, slots=True)
class Source:
    """``path`` is what tracebacks show. ``folder`` is where its modules are looked for; None has none."""

    path: str
    text: str
    folder: Path | None = None

    def find_module(self, name: str, longest: int) -> tuple[str, str] | None:
        """``(path, text)`` of ``name``, written with dots, if it lies below the folder. Raises InferletInvalid."""
        parts = name.split(".")
        if self.folder is None or not all(part.isidentifier() for part in parts):
            return None
        base = self.folder.joinpath(*parts)
        for candidate in (base / "__init__.py", base.with_name(base.name + ".py")):
            # A link may lead out of the folder; what it leads to stays out of reach.
            if candidate.is_file() and candidate.resolve().is_relative_to(self.folder.resolve()):
                return str(candidate), read(candidate, longest)
        return None

    def beside(self, path: str, longest: int) -> Source:
        """The program at ``path``, relative to the folder and inside of it. Raises InferletInvalid."""
        base = None if self.folder is None else self.folder.resolve()
        found = None if base is None else (base / path).resolve()
        if base is None or found is None or not found.is_relative_to(base):
            where = "has no folder" if base is None else f"lies in {self.folder}"
            raise InferletInvalid(f"{path!r} was to be started by a program that {where}; name a file below its folder")
        return load(found, longest)


def load(where: Path | str, longest: int) -> Source:
    """The source at a path, or a text that is the source itself. Raises InferletInvalid."""
    if isinstance(where, str):
        return Source("main.py", where)
    path = where / "main.py" if where.is_dir() else where
    return Source(str(path), read(path, longest), path.parent)


def read(path: Path, longest: int) -> str:
    """A Python file as text, in the encoding that it declares."""
    try:
        with path.open("rb") as file:
            data = file.read(longest + 1)
    except OSError as error:
        raise InferletInvalid(
            f"{path} can't be read: {error.strerror or error}; name the inferlet's Python source"
        ) from None
    if len(data) > longest:
        raise InferletInvalid(f"{path} has more than {longest:,} bytes; that is the most for one source file")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (SyntaxError, LookupError, UnicodeDecodeError) as error:
        raise InferletInvalid(f"{path} isn't Python source: {error}; save it as UTF-8") from None
