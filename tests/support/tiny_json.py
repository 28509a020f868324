"""A tokenizer for the tiny model's 64 tokens in which JSON can be written, with tokens that span its marks."""

from __future__ import annotations

from tests.support.tiny_text import CONTROL, TinyTokenizer

PIECES: tuple[bytes, ...] = (
    *(CONTROL[token].encode() for token in range(4)),
    *(mark.encode() for mark in '{}[]":,.-+ \n\\'),
    *(digit.encode() for digit in "0123456789"),
    *(letter.encode() for letter in "abcdefilnorstuy"),
    *("é".encode()[:1], "é".encode()[1:]),
    *(
        word.encode()
        for word in ('{"', '": ', '", "', '"}', "true", "null", "false", ', "', "age", "name", "é", "10", "ab", "<eos>")
    ),
    *(word.encode() for word in ('": "', "[]", "]}", "e+", "-1", "\n\n")),
)
assert len(PIECES) == 64
assert len(set(PIECES)) == 63, "one text is a control token's name too"


class TinyJson(TinyTokenizer):
    """The longest piece first."""

    pieces = PIECES
    unknown = PIECES.index(b".")
