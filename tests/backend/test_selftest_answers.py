"""The stored answers of the self-tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.selftest_answers import answers


def leaves(found: Any, path: str = "") -> Iterator[tuple[str, list[float]]]:
    if isinstance(found, list):
        yield path, found
        return
    for name, value in found.items():
        yield from leaves(value, f"{path}/{name}")


def test_the_stored_answers_are_the_references() -> None:
    for file, found in answers().items():
        stored, expected = (dict(leaves(of)) for of in (json.loads(file.read_text(encoding="utf-8")), found))
        assert stored.keys() == expected.keys()
        for name, digest in expected.items():
            np.testing.assert_allclose(stored[name], digest, rtol=1e-4, atol=1e-5, err_msg=f"{file}{name}")
