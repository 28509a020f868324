"""The SDK's errors are pie-edge's own, by code."""

from __future__ import annotations

import pytest

from pie_edge import errors as ours
from tests.support import sdk  # noqa: F401  (makes the SDK importable)

from inferlet import errors  # isort: skip

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PieError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_has_the_code_and_the_place_of_its_namesake(kind: type[errors.PieError]) -> None:
    namesake = getattr(ours, kind.__name__)
    assert kind.code == namesake.code
    if kind is not errors.PieError:
        assert kind.__base__ is not None
        assert kind.__base__.__name__ == namesake.__base__.__name__


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_code_gives_its_class(kind: type[errors.PieError]) -> None:
    error = errors.from_code(kind.code, "why")
    assert type(error) is kind
    assert str(error) == "why"


def test_an_unknown_code_is_kept() -> None:
    error = errors.from_code("of-tomorrow", "why")
    assert type(error) is errors.PieError
    assert error.code == "of-tomorrow"
    assert errors.PieError.code == "error"
