"""How each known ``tokenizer.ggml.pre`` cuts text into words before byte-level BPE merges inside them.

The patterns are those of the models' own tokenizers. They are applied one after the other: every match becomes a word,
what lies between matches becomes words too, and the next pattern cuts each of these further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pie_edge.errors import TokenizerError

DEFAULT = "default"
"""Used for files without ``tokenizer.ggml.pre``."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``whole_words``: a word that is itself a token is taken as such, without merging (``ignore_merges``)."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_KANJI_KANA = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"
_CJK = r"[\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+"
_ASCII_PUNCTUATION = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK_V3 = _ASCII_PUNCTUATION + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
_NOT_SENTENCE_END = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+"
_CASED_LETTERS = """
    41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c 38e-3a1
    3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a
    1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4
    1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128
    212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d
    a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f
    104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""
"""Ranges of code points: the letters that have case."""


def _ranges(points: str) -> str:
    return "-".join(f"\\x{{{point}}}" for point in points.split("-"))


def _words(number: str, letters: str = r"\p{L}") -> str:
    """The pattern that GPT-4 introduced; models vary in how digits group and in what counts as a letter."""
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{number}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased_words(number: str, suffix: str) -> str:
    """The pattern of o200k: a word starts anew where lower case is followed by upper case."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    head = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{head}{upper}*{lower}+{suffix}|{head}{upper}+{lower}*{suffix}|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_LLAMA3 = PreTokenizer((_words(r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)
_THREE_DIGITS = PreTokenizer((_words(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_words(r"\p{N}"),))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_SINGLE_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _KANJI_KANA, _DEEPSEEK_V3))
_GPT4O = PreTokenizer((_cased_words(r"\p{N}{1,3}", f"{_CONTRACTION}?"),))
_SENTENCES = PreTokenizer((_NOT_SENTENCE_END,))
_BAILING = PreTokenizer(
    (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",)
)
# Digits in threes from the right, as a pattern that consumes them: a zero-width cut is not something a split can do.
_THREES_FROM_RIGHT = r"\d{1,3}(?=(?:\d{3})*(?!\d))"
_JAIS2_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
_HANGUL_AND_CJK = (
    r"[\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}"
    r"\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|" + _KANJI_KANA
)

_QWEN35 = PreTokenizer((_words(r"\p{N}", letters=r"\p{L}\p{M}"),))
_DEEPSEEK_LLM = PreTokenizer(
    (
        r"[\r\n]",
        rf"\s?[{''.join(map(_ranges, _CASED_LETTERS.split()))}]+",
        r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
        r"\s+$",
        _CJK,
        r"\p{N}+",
    )
)
_DEEPSEEK_CODER = PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"))
_SEED_CODER = PreTokenizer(
    (rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)
)
_EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_JAIS2 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    rf"|\s*[\r\n]+|{_JAIS2_SPACES}"
)

_LIKE_GPT2 = (
    "phi-2 olmo mpt jais trillion granite-docling gigachat a.x-4.0 mellum exaone4 modern-bert roberta-bpe "
    "jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code"
)

# The rule, and the other names under which files ask for it.
_TABLE: dict[str, tuple[PreTokenizer, str]] = {
    "default": (PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")), ""),
    "gpt-2": (_PLAIN_GPT2, _LIKE_GPT2),
    "smollm": (_SINGLE_DIGITS, "starcoder refact command-r codeshell exaone minerva-7b"),
    "llama-bpe": (_LLAMA3, "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
    "dbrx": (_THREE_DIGITS, "smaug-bpe chatglm-bpe glm4"),
    "qwen2": (_QWEN2, "deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo f2llmv2"),
    "qwen35": (_QWEN35, ""),
    "deepseek-llm": (_DEEPSEEK_LLM, ""),
    "deepseek-coder": (_DEEPSEEK_CODER, ""),
    "deepseek-v3": (_DEEPSEEK3, "hunyuan-dense joyai-llm"),
    "falcon": (PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")), ""),
    "tekken": (PreTokenizer((_cased_words(r"\p{N}", ""),), whole_words=True, adds_bos=True), ""),
    "gpt-4o": (_GPT4O, "llama4 kanana2 minimax-m2"),
    "tiny_aya": (replace(_GPT4O, patterns=(r"\d{1,3}(?=(?:\d{3})*\b)", *_GPT4O.patterns)), ""),
    "youtu": (PreTokenizer((_HANGUL_AND_CJK, _cased_words(r"\p{N}", f"{_CONTRACTION}?")), whole_words=True), ""),
    "superbpe": (PreTokenizer((r"\p{N}+", _THREES_FROM_RIGHT)), ""),
    "bailingmoe": (_BAILING, "bailingmoe2 llada-moe"),
    "seed-coder": (_SEED_CODER, ""),
    "exaone-moe": (PreTokenizer((_EXAONE_MOE,)), ""),
    "jais-2": (PreTokenizer((_JAIS2,)), ""),
    "bloom": (_SENTENCES, "poro-chat gpt3-finnish"),
    "viking": (replace(_SENTENCES, patterns=(_NOT_SENTENCE_END, r"\p{N}")), ""),
    "chameleon": (PreTokenizer((r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", _GPT2), adds_bos=True), ""),
}

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: rule for main, (rule, aliases) in _TABLE.items() for name in (main, *aliases.split())
}


def find(name: str) -> PreTokenizer:
    """The pre-tokenizer of this ``tokenizer.ggml.pre``; an unknown name is refused, for its ids would be wrong."""
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        raise TokenizerError(
            f"the model's pre-tokenizer {name!r} (tokenizer.ggml.pre) is not known here; "
            f"known are {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    return rule
