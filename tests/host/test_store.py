"""The store: what is set stays set, for every program, after a restart and beside another process."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from pie_edge.errors import ResourceError
from pie_edge.host.store import LONGEST_KEY, LONGEST_VALUE, MOST_LISTED, Store
from tests.host.hosting import finish, run
from tests.host.tiny_hosting import on_tiny, run_tiny


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "store.sqlite3")


def test_a_value_is_set_replaced_and_deleted(store: Store) -> None:
    assert store.get("key") is None
    assert not store.exists("key")
    store.set("key", "value")
    store.set("key", "grüße \U0001f600\n'\"; DROP TABLE entries")
    assert store.get("key") == "grüße \U0001f600\n'\"; DROP TABLE entries"
    assert store.exists("key")
    assert store.delete("key")
    assert not store.delete("key")
    assert store.get("key") is None


def test_values_survive_a_restart_and_are_seen_by_another_process(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "s"), Store(tmp_path / "s")
    first.set("key", "value")
    assert second.get("key") == "value"
    second.set("key", "changed")
    assert first.get("key") == "changed"
    first.close()
    second.close()
    assert Store(tmp_path / "s").get("key") == "changed"


def test_keys_are_listed_by_prefix_in_order_and_in_pieces(store: Store) -> None:
    for key in ("b", "a/2", "a/1", "a", "a0", "a/10", "ä"):
        store.set(key, "")
    assert store.keys("", None, 100) == ["a", "a/1", "a/10", "a/2", "a0", "b", "ä"]
    assert store.keys("a/", None, 100) == ["a/1", "a/10", "a/2"]
    assert store.keys("a/", "a/1", 1) == ["a/10"]
    assert store.keys("a/", "a/2", 100) == []
    assert store.keys("x", None, 100) == []
    assert store.keys("", None, 0) == []


def test_no_listing_takes_long(store: Store) -> None:
    for number in range(MOST_LISTED + 1):
        store.set(f"{number:05}", "")
    assert len(store.keys("", None, 10**6)) == MOST_LISTED


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("", "", "a key of 0 characters"),
        ("k" * (LONGEST_KEY + 1), "", f"a key of {LONGEST_KEY + 1} characters"),
        ("key", "v" * (LONGEST_VALUE + 1), f"a value of {LONGEST_VALUE + 1:,} characters for the key 'key'"),
    ],
)
def test_what_is_too_long_is_refused(store: Store, key: str, value: str, said: str) -> None:
    with pytest.raises(ResourceError, match=said):
        store.set(key, value)
    store.set("k" * LONGEST_KEY, "v" * LONGEST_VALUE)


def test_a_full_store_refuses_and_has_room_again_after_a_deletion(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", capacity=2**20)
    for number in range(5):
        store.set(str(number), "x" * 100_000)
    with pytest.raises(ResourceError, match="full; it holds 1 MiB; delete keys"):
        store.set("too much", "x" * 700_000)
    assert store.get("too much") is None
    assert store.get("0") == "x" * 100_000
    store.delete("0")
    store.set("again", "x" * 100_000)


def test_a_damaged_file_and_a_folder_that_cannot_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"no database" * 1000)
    with pytest.raises(ResourceError, match="the store .*damaged refused: file is not a database; check the folder"):
        Store(tmp_path / "damaged").get("key")
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="refused"):
        Store(tmp_path / "file" / "store").set("key", "value")


def test_a_writer_in_another_process_holds_a_call_up_for_a_moment_at_most(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.set("key", "value")
    other = sqlite3.connect(tmp_path / "s", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.perf_counter()
    with pytest.raises(ResourceError, match="locked"):
        store.set("key", "changed")
    assert time.perf_counter() - start < 2
    assert store.get("key") == "value"
    other.execute("COMMIT")
    other.close()
    store.set("key", "changed")


SOURCE = """
from inferlet import errors, store
async def main(input):
    before = store.get("count")
    store.set("count", str(int(before or 0) + 1))
    for i in range(input.get("fill", 0)):
        store.set(f"filled/{i:04}", "x")
    return before, store.exists("count"), store.delete("nothing"), len(list(store.keys("filled/"))), list(store.keys("c"))
"""


def test_programs_share_it_and_find_it_again_after_a_restart(tmp_path: Path) -> None:
    async def body(host: Any, _: Any) -> list[Any]:
        return [(await finish(host, SOURCE, {"fill": 1001}, name=name)).result for name in ("one", "other")]

    assert on_tiny(body, data=tmp_path) == [[None, True, False, 1001, ["count"]], ["1", True, False, 1001, ["count"]]]
    assert run_tiny(SOURCE, data=tmp_path).result == ["2", True, False, 1001, ["count"]]


def test_a_refusal_is_an_error_that_the_program_can_catch() -> None:
    source = """
from inferlet import errors, store
async def main(input):
    try:
        store.get("key")
    except errors.ResourceError as error:
        return str(error)
"""
    assert run(source).result == "this host keeps no store; start it with a data folder"
