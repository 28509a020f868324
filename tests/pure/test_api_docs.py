"""``docs/api`` is what the WIT and the SDK say, and says it of everything; and the reader of WIT that it is made with."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

api_docs: Any = importlib.import_module("api_docs")
wit: Any = importlib.import_module("wit")

INTERFACES = wit.read_all(sorted((ROOT / "inferlets" / "wit").glob("*.wit")))
FUNCTIONS = [
    (f"{interface.name}.{owner}{function.name}", function, interface)
    for interface in INTERFACES.values()
    for owner, functions in [("", interface.functions), *((f"{one.name}.", one.methods) for one in interface.types)]
    for function in functions
]


def test_the_committed_pages_are_what_the_script_makes() -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "docs" / "api").glob("*.md")}
    assert committed == api_docs.pages(), "run scripts/generate-docs"


def test_the_paper_has_42_functions_and_each_is_there() -> None:
    rows = api_docs.rows(api_docs.PAPER)
    assert len(rows) == len({(row.group, row.name) for row in rows}) == 42
    counts = {
        "Allocate": 8,
        "Forward": 3,
        "InputText": 1,
        "InputImage": 2,
        "OutputText": 1,
        "Tokenize": 3,
        "runtime": 3,
    }
    counts |= {"models": 3, "model facts": 6, "client, peers": 4, "store": 5, "queues": 3}
    assert {group: sum(row.group == group for row in rows) for group in counts} == counts
    for row in rows:
        assert api_docs.resolve(row.wit, INTERFACES)
        assert api_docs.signature(row.python)


@pytest.mark.parametrize(("path", "function", "interface"), FUNCTIONS, ids=[path for path, _, _ in FUNCTIONS])
def test_every_function_says_what_it_does_and_how_it_fails(path: str, function: Any, interface: Any) -> None:
    assert function.docs, f"{path} has no docs"
    if (function.result or "").startswith("result<"):
        assert "Errors:" in function.docs or "fails with" in interface.docs, f"{path} doesn't say how it fails"


def test_every_request_says_what_it_gives() -> None:
    for case in INTERFACES["events"].type("request").members:
        assert "Gives `" in case.docs, case.name


def test_every_case_of_a_request_is_begun_by_the_host() -> None:
    from pie_edge.host.requests import _KINDS

    assert {case.name for case in INTERFACES["events"].type("request").members} == set(_KINDS)


def test_every_function_of_the_contract_is_in_the_host_s_table_and_no_other() -> None:
    from pie_edge.host.services import _TABLE

    def named(interface: Any) -> set[str]:
        found = {function.name for function in interface.functions}
        for kind in interface.types:
            for method in kind.methods:
                role = {"constructor": f"[constructor]{kind.name}", "static func": f"[static]{kind.name}.{method.name}"}
                found.add(role.get(method.kind, f"[method]{kind.name}.{method.name}"))
        return found

    contract = {name: named(one) for name, one in INTERFACES.items() if name not in ("language", "events")}
    assert {name: set(functions) for name, (_, functions) in _TABLE.items()} == contract


def test_the_reader_reads_all_that_the_files_have() -> None:
    [found] = wit.read("""
package a:b@0.1.0;
// not said
/// Of the interface.
interface x {
  use y.{z, u as v};
  /// A record.
  record r { /// One.
    a: option<tuple<u32, list<string>>>, b: bool }
  variant w { one, two(r), }
  enum e { p, %stream }
  /// Held.
  resource h {
    constructor(a: u32);
    /// Made.
    make: static func() -> result<h, _>;
    go: func(x: u8,);
  }
  /// Called.
  f: func(a: w) -> result<_, e>;
}
""")
    assert (found.name, found.docs) == ("x", "Of the interface.")
    record, variant, enum, resource = found.types
    assert [str(one) for one in (record.docs, record.members[0].docs, record.members[0].type)] == [
        "A record.",
        "One.",
        "option<tuple<u32, list<string>>>",
    ]
    assert [(one.name, one.type) for one in variant.members] == [("one", None), ("two", "r")]
    assert [one.name for one in enum.members] == ["p", "stream"]
    assert [str(one) for one in resource.methods] == [
        "constructor(a: u32)",
        "make: static func() -> result<h, _>",
        "go: func(x: u8)",
    ]
    assert str(found.functions[0]) == "f: func(a: w) -> result<_, e>"
    assert found.functions[0].docs == "Called."


@pytest.mark.parametrize(
    "text", ["interface x {", "interface x { f: g; }", "interface x { f: func( }", "nonsense", "interface x { § }"]
)
def test_the_reader_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(SyntaxError):
        wit.read(text, "test.wit")
