"""Each known pre-tokenizer cuts text where its pattern says.

The vocabulary of a case has a token for every stretch of the text and merges that lead to each from all sides, so that
every word becomes one token, and the tokens are the words.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import Tokenizer
from pie_edge.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.support.vocabularies import as_letters, byte_level


def words(pre: str | None, text: str) -> list[str]:
    letters = as_letters(text)
    stretches = {letters[a:b] for a in range(len(letters)) for b in range(a + 2, len(letters) + 1)}
    merges = [(s[:cut], s[cut:]) for s in sorted(stretches, key=len) for cut in range(1, len(s))]
    tokenizer = Tokenizer.from_gguf(byte_level(merges=merges, pre=pre))
    return [tokenizer.token_bytes(token).decode() for token in tokenizer.encode(text)]


SPLIT_DIGITS = ["ab", "1", "2", "3", "4", "5"]
THREE_DIGITS = ["ab", "123", "45"]
LOWER, UPPER = ["it", "'s"], ["IT", "'S"]
# Case by case: the pattern of GPT-2 knows contractions in lower case only; GPT-4's also in upper case, keeps
# punctuation with the letters after it and newlines with the punctuation before them.
CASES: dict[str, list[tuple[str, list[str]]]] = {
    "gpt-2": [
        ("it's", LOWER),
        ("IT'S", ["IT", "'", "S"]),
        ("ab12345", ["ab", "12345"]),
        ("a  b", ["a", " ", " b"]),
        ("a\n\n b", ["a", "\n\n", " b"]),
        ("a.\nb", ["a", ".", "\n", "b"]),
        ("a(b", ["a", "(", "b"]),
        ("日本語 1", ["日本語", " 1"]),
        ("é!?", ["é", "!?"]),
    ],
    "smollm": [
        ("ab12345", SPLIT_DIGITS),
        ("it's", LOWER),
        ("a 1", ["a", " ", "1"]),
        ("a  b", ["a", " ", " b"]),
        ("IT'S", ["IT", "'", "S"]),
    ],
    "llama-bpe": [
        ("ab12345", THREE_DIGITS),
        ("IT'S", UPPER),
        ("it's", LOWER),
        ("a(b", ["a", "(b"]),
        ("a.\n\nb", ["a", ".\n\n", "b"]),
        ("a  b", ["a", " ", " b"]),
        ("a \n b", ["a", " \n", " b"]),
        ("日本語 1", ["日本語", " ", "1"]),
    ],
    "dbrx": [("ab12345", THREE_DIGITS), ("IT'S", UPPER), ("a.\n\nb", ["a", ".\n\n", "b"])],
    "qwen2": [
        ("ab12345", SPLIT_DIGITS),
        ("IT'S", UPPER),
        ("a(b", ["a", "(b"]),
        ("a.\n\nb", ["a", ".\n\n", "b"]),
        ("a\t\tb", ["a", "\t", "\tb"]),
        ("नि", ["न", "ि"]),
    ],
    # Qwen 3.5 counts combining marks as letters.
    "qwen35": [("ab12345", SPLIT_DIGITS), ("नि", ["नि"]), ("a.\n\nb", ["a", ".\n\n", "b"])],
    "deepseek-llm": [
        ("ab 12", ["ab", " ", "12"]),
        ("ab cd", ["ab", " cd"]),
        ("a, b", ["a", ",", " b"]),
        ("a\n\nb", ["a", "\n", "\n", "b"]),
        ("мир日本", ["мир", "日本"]),
        ("a\N{OHM SIGN}b", ["a", "\N{OHM SIGN}", "b"]),
        ("aا", ["a", "ا"]),
    ],
    "deepseek-coder": [
        ("ab12", ["ab", "1", "2"]),
        ("a, b", ["a", ",", " b"]),
        ("a\n\nb", ["a", "\n", "\n", "b"]),
        ("ab日本", ["ab", "日本"]),
    ],
    "deepseek-v3": [
        ("ab12345", THREE_DIGITS),
        ("日本x語", ["日本", "x", "語"]),
        ("a.b", ["a", ".b"]),
        ("a ++\nb", ["a", " ++\n", "b"]),
    ],
    "default": [("a12345", ["a", "123", "45"]), ("a.b", ["a", ".", "b"]), ("it's", ["it", "'", "s"])],
    "falcon": [("a12345", ["a", "123", "45"]), ("a`b", ["a", "`", "b"]), ("it's", ["it", "'", "s"])],
    "tekken": [
        ("ab12", ["ab", "1", "2"]),
        ("camelCase", ["camel", "Case"]),
        ("it's", ["it", "'s"]),
        ("a./\nb", ["a", "./\n", "b"]),
        ("HTTPServer", ["HTTPServer"]),
    ],
    "gpt-4o": [
        ("ab12345", THREE_DIGITS),
        ("camelCase", ["camel", "Case"]),
        ("it's", ["it's"]),
        ("a./\nb", ["a", "./\n", "b"]),
    ],
    "tiny_aya": [("ab12345", ["ab", "12", "345"]), ("camelCase", ["camel", "Case"])],
    "youtu": [("ab12", ["ab", "1", "2"]), ("한국x日本", ["한국", "x", "日本"]), ("it's", ["it's"])],
    "superbpe": [("ab cd 12345", ["ab cd ", "12", "345"])],
    "bailingmoe": [("ab12", ["ab", "1", "2"]), ("IT'S", UPPER), ("a\n\nb", ["a", "\n\n", "b"])],
    "seed-coder": [("ab12", ["ab", "1", "2"]), ("a.\n\nb", ["a", ".", "\n\n", "b"])],
    "exaone-moe": [("ab cd", ["ab cd"]), ("ab12", ["ab", "1", "2"]), ("a.\nb", ["a", ".\n", "b"])],
    "jais-2": [("ab12345", THREE_DIGITS), ("a       b", ["a", "    ", "  ", " b"])],
    "bloom": [("ab cd12.", ["ab", " cd12", "."]), ("a  b", ["a", " ", " b"])],
    "viking": [("ab cd12.", ["ab", " cd", "1", "2", "."])],
    "chameleon": [("a  b", ["a", "  ", "b"]), ("a12", ["a", "1", "2"]), ("a.b", ["a", ".", "b"])],
}
ALIASES = {
    "gpt-2": "phi-2 olmo mpt exaone4",
    "smollm": "starcoder refact command-r codeshell",
    "llama-bpe": "llama3 llama-v3 falcon3 lfm2",
    "dbrx": "smaug-bpe glm4 chatglm-bpe",
    "qwen2": "megrez deepseek-r1-qwen stablelm2",
    "deepseek-v3": "hunyuan-dense",
    "gpt-4o": "llama4",
}


@pytest.mark.parametrize(("pre", "text", "expected"), [(pre, *case) for pre, cases in CASES.items() for case in cases])
def test_text_is_cut_into_the_words_of_the_models_pattern(pre: str, text: str, expected: list[str]) -> None:
    assert words(pre, text) == expected


@pytest.mark.parametrize(("main", "alias"), [(main, name) for main, names in ALIASES.items() for name in names.split()])
def test_files_that_use_another_name_for_a_pattern_get_the_same_words(main: str, alias: str) -> None:
    assert PRE_TOKENIZERS[alias] == PRE_TOKENIZERS[main]


def test_every_pattern_has_its_cases() -> None:
    assert {id(PRE_TOKENIZERS[name]) for name in CASES} == {id(rule) for rule in PRE_TOKENIZERS.values()}


@pytest.mark.parametrize("pre", sorted(CASES))
def test_any_text_comes_back_through_every_pattern(pre: str) -> None:
    tokenizer = Tokenizer.from_gguf(byte_level(pre=pre))

    @settings(max_examples=25, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
    def comes_back(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text)) == text

    comes_back()


def test_a_file_without_a_pre_tokenizer_gets_the_default_one() -> None:
    assert words(None, "a12345.b") == words("default", "a12345.b")


def test_an_unknown_pre_tokenizer_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(TokenizerError, match=r"'brand-new' \(tokenizer\.ggml\.pre\).*known are .*llama-bpe.*qwen2"):
        Tokenizer.from_gguf(byte_level(pre="brand-new"))


@pytest.mark.parametrize(("pre", "expected"), [("llama-bpe", 1), ("tekken", 1), ("qwen2", 2), ("gpt-2", 2)])
def test_a_word_that_is_a_token_needs_no_merges_where_the_model_was_trained_so(pre: str, expected: int) -> None:
    metadata = byte_level(pre=pre)
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "ab"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 1]
    assert len(Tokenizer.from_gguf(metadata).encode("ab")) == expected


@pytest.mark.parametrize(("pre", "adds"), [("llama-bpe", True), ("tekken", True), ("qwen2", False), ("smollm", False)])
def test_whether_bos_starts_a_text_is_the_families_custom_unless_the_file_says(pre: str, adds: bool) -> None:
    assert Tokenizer.from_gguf(byte_level(["<s>"], pre=pre, bos_token_id=0)).prefix() == ([0] if adds else [])
    assert Tokenizer.from_gguf(byte_level(["<s>"], pre=pre, bos_token_id=0, add_bos_token=not adds)).prefix() == (
        [] if adds else [0]
    )
