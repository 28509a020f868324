"""A schema, walked once: checked, and written for the matching library in the form that it enforces whole."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any

from pie_edge.errors import GrammarError
from pie_edge.grammar.schema import finite
from pie_edge.grammar.schema.keywords import DIALECTS
from pie_edge.grammar.schema.refusal import ROOT, Place, refuse
from pie_edge.grammar.schema.rewrite import Rewriter, Schema

MOST_SCHEMAS = 10_000
"""Schemas within one."""
DEEPEST = 64
_PAUSE = 50
"""Schemas after which other threads may go on."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,5}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Prepared:
    """``text`` is the whole schema; ``parts`` are the schemas in it, innermost first, with their places in the original.
    ``definitions`` are what the references in them mean."""

    text: str
    parts: tuple[tuple[Place, Schema], ...]
    definitions: dict[str, Schema]


def prepare(text: str) -> Prepared:
    """Raises GrammarError, which names the keyword and where it is."""
    try:
        root = json.loads(text, parse_constant=_no_number)
        if _SURROGATE.search(text):
            json.dumps(root, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise GrammarError("the schema has a lone surrogate, which no text can have; pass valid Unicode") from None
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the schema is no JSON: {error}") from None
    try:
        return _Preparation(root).prepared()
    except RecursionError:
        raise GrammarError("the schema can't be enforced: its values are nested too deeply") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON's")


class _Preparation:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._count = 0
        self._names: dict[str, str] = {}
        """Of definitions, by the reference to them."""
        self._pending: list[str] = []
        self._parts: list[tuple[Place, Schema]] = []

    def prepared(self) -> Prepared:
        if isinstance(self._root, dict) and "$schema" in self._root:
            self._check_dialect(self._root["$schema"])
        schema = self._schema(self._root, ROOT, 0)
        definitions: dict[str, Schema] = {}
        while self._pending:
            reference = self._pending.pop()
            place = Place(reference)
            definitions[self._names[reference]] = self._schema(self.resolve(reference, place), place, 0)
        time.sleep(0)
        if not finite.is_finite(schema, definitions):
            refuse(ROOT, "no finite value is valid: it needs itself, or false")
        time.sleep(0)
        whole = {**schema, "$defs": definitions} if definitions else schema
        return Prepared(json.dumps(whole), tuple(self._parts), definitions)

    def resolve(self, reference: Any, place: Place) -> Any:
        """What a reference names. Refuses those that lead elsewhere."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            refuse(
                place,
                f"{reference!r:.80} isn't a reference into this schema; only those like '#/$defs/name' are followed",
            )
        found = self._root
        for step in reference.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and _INDEX.fullmatch(key) and int(key) < len(found):
                found = found[int(key)]
            else:
                refuse(place, f"there is nothing at {reference!r:.80}")
        return found

    def _check_dialect(self, name: Any) -> None:
        if not isinstance(name, str) or name.rstrip("#") not in DIALECTS:
            refuse(ROOT / "$schema", f"{name!r:.80} isn't known; there are drafts 4, 6 and 7, 2019-09 and 2020-12")

    def _schema(self, schema: Any, place: Place, depth: int) -> Schema:
        self._count += 1
        if self._count % _PAUSE == 0:
            time.sleep(0)
        if self._count > MOST_SCHEMAS or depth > DEEPEST:
            refuse(place, f"there are more than {MOST_SCHEMAS:,} schemas in it, or more than {DEEPEST} in one another")
        if isinstance(schema, bool):
            return {} if schema else False
        if not isinstance(schema, dict):
            refuse(place, f"{schema!r:.80} isn't a schema, which is an object, true or false")
        found = Rewriter(self, place, depth, schema).rewritten()
        self._parts.append((place, found))
        return found

    def reference(self, reference: Any, place: Place) -> str:
        """The one that is written in its place."""
        self.resolve(reference, place)
        if reference not in self._names:
            self._names[reference] = str(len(self._names))
            self._pending.append(reference)
        return f"#/$defs/{self._names[reference]}"

    def below(self, schema: Any, place: Place, depth: int) -> Schema:
        return self._schema(schema, place, depth + 1)
