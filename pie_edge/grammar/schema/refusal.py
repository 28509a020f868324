"""Where in a schema something is that can't be enforced."""

from __future__ import annotations

from typing import NoReturn

from pie_edge.errors import GrammarError


class Place(str):
    """A JSON pointer into the schema, as a fragment: ``#/properties/a``."""

    __slots__ = ()

    def __truediv__(self, step: str | int) -> Place:
        return Place(f"{self}/{str(step).replace('~', '~0').replace('/', '~1')}")

    @property
    def keyword(self) -> str:
        """The last step, as it is written in the schema."""
        return self.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


ROOT = Place("#")


def refuse(place: Place, why: str) -> NoReturn:
    """Raises GrammarError for the keyword at this place."""
    raise GrammarError(f"the schema can't be enforced: {place.keyword!r} at {place}: {why}")
