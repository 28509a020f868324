"""The words after ``--`` as an inferlet's input."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.cli.inputs import parse_words, read_object
from pie_edge.errors import UsageError


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--prompt", "The capital of France is"], {"prompt": "The capital of France is"}),
        (["--max-tokens", "8", "--temperature=0.5"], {"max_tokens": 8, "temperature": 0.5}),
        (["--stop", "a", "--stop", "b", "--stop", "3"], {"stop": ["a", "b", 3]}),
        (["--ids", "[1, 2]", "--options", '{"a": null}'], {"ids": [1, 2], "options": {"a": None}}),
        (["--verbose", "--echo", "true"], {"verbose": True, "echo": True}),
        (["--no-echo", "--no-repeat", "3"], {"echo": False, "no_repeat": 3}),
        (["--seed:text", "123", "--word:text=true"], {"seed": "123", "word": "true"}),
        (["--offset", "-1"], {"offset": -1}),
        (["--prompt=--help", "--empty="], {"prompt": "--help", "empty": ""}),
        (["--zip", "0123", "--not-json", "[1,"], {"zip": "0123", "not_json": "[1,"}),
        (["--a", "NaN", "--b", "Infinity", "--c", "1e400"], {"a": "NaN", "b": "Infinity", "c": "1e400"}),
        (["--größe", "8", "--deep", "[" * 100_000], {"größe": 8, "deep": "[" * 100_000}),
        (["--quote", "a=b --c"], {"quote": "a=b --c"}),
    ],
)
def test_words_become_typed_values(words: list[str], expected: dict[str, Any]) -> None:
    assert parse_words(words) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hello"], "'hello' after -- has no key; write it as --key hello"),
        (["--prompt", "a", "b"], "'b' after -- has no key"),
        (["-p", "a"], "'-p' after -- has no key"),
        (["--", "x"], "'--' is no key; keys are names"),
        (["--=x"], "'--=x' is no key"),
        (["--a.b", "x"], "'--a.b' is no key"),
        (["--a:number", "x"], "'--a:number' is no key"),
        (["--a:text"], "--a:text needs a value"),
        (["--a", "\udcff"], "is not valid UTF-8"),
    ],
)
def test_a_word_that_makes_no_sense_is_refused_by_name(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_words(words)
    assert told in refused.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_json_value_passes_as_it_is(value: Any) -> None:
    assert parse_words([f"--key={json.dumps(value)}"]) == {"key": value}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_passes_as_it_is_when_text_is_asked_for(text: str) -> None:
    assert parse_words([f"--key:text={text}"]) == {"key": text}


@given(st.lists(st.text(), max_size=6))
def test_any_words_give_an_input_or_a_usage_error_and_nothing_else(words: list[str]) -> None:
    try:
        json.dumps(parse_words(words), allow_nan=False)
    except UsageError as error:
        assert error.message  # noqa: PT017


def test_an_object_is_read_from_a_file_or_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.json").write_text('{"prompt": "ü"}', encoding="utf-8")
    assert read_object(str(tmp_path / "in.json")) == {"prompt": "ü"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"n": 1}')))
    assert read_object("-") == {"n": 1}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[1]", "holds list; an inferlet's input is a JSON object"),
        (b"{", "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b"\xff", "can't be read"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"n": 1' + b"0" * 5000 + b"}", "a number of 5,001 digits, the most is 4,300; write it as text"),
        (b" \n", "is empty; an inferlet's input is a JSON object"),
    ],
)
def test_an_input_file_that_is_no_object_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_object(str(tmp_path / "in.json"))
    assert told in refused.value.message


def test_a_byte_order_mark_before_an_input_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"n": 1}', encoding="utf-8-sig")
    assert read_object(str(tmp_path / "in.json")) == {"n": 1}


def test_an_input_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        read_object(str(tmp_path / "none.json"))
