"""Parked pages on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from pie_edge.spill import FileSpill


def test_what_is_put_comes_back_and_nothing_is_left(tmp_path: Path) -> None:
    spill = FileSpill(tmp_path / "parked")
    assert not (tmp_path / "parked").exists()
    spill.put(1, b"one")
    spill.put(2, b"two" * 1000)
    assert (spill.get(1), spill.get(2)) == (b"one", b"two" * 1000)
    spill.drop(1)
    with pytest.raises(FileNotFoundError):
        spill.get(1)
    spill.close()
    assert list((tmp_path / "parked").iterdir()) == []


def test_two_processes_do_not_meet(tmp_path: Path) -> None:
    one, other = FileSpill(tmp_path), FileSpill(tmp_path)
    one.put(1, b"mine")
    other.put(1, b"theirs")
    one.close()
    assert other.get(1) == b"theirs"
