"""A tokenizer for the tiny model's 64 tokens: letters, a few words, and the bytes of an emoji, so that text has everything
that is hard about it."""

from __future__ import annotations

from pie_edge.errors import InvalidHandle
from pie_edge.tokenizer.formats import Formats
from pie_edge.tokenizer.vocabulary import Kind

CONTROL = {0: "<pad>", 1: "<bos>", 2: "<eos>", 3: "<turn>"}
EMOJI = "\U0001f600"
PIECES: tuple[bytes, ...] = (
    *(CONTROL[token].encode() for token in range(4)),
    *(bytes([byte]) for byte in EMOJI.encode()),
    *(letter.encode() for letter in "abcdefghijklmnopqrstuvwxyz"),
    *(mark.encode() for mark in " .,:!?\n'"),
    *(digit.encode() for digit in "0123456789"),
    *(word.encode() for word in ("the", " a", "ing", "er", " o", "ne.", "stop", "END", " yes", " no", "é", "ss")),
)
assert len(PIECES) == 64


class TinyTokenizer:
    """The longest piece first; a byte that there is no piece for is a question mark."""

    pieces = PIECES
    unknown = PIECES.index(b"?")
    bos, eos = 1, 2
    stop_tokens = frozenset({2})
    size = len(PIECES)
    strips_space = strips_after_markers = False

    def prefix(self) -> list[int]:
        return [self.bos]

    def suffix(self) -> list[int]:
        return [self.eos]

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        data, found = text.encode(), []
        first = 0 if special else len(CONTROL)
        while data:
            fitting = [token for token in range(first, self.size) if data.startswith(self.pieces[token])]
            token = max(fitting, key=lambda one: len(self.pieces[one]), default=self.unknown)
            found.append(token)
            data = data[len(self.pieces[token]) if fitting else 1 :]
        return found

    def token_bytes(self, token: int) -> bytes:
        self.kind(token)
        return self.pieces[token]

    def kind(self, token: int) -> Kind:
        if not 0 <= token < self.size:
            raise InvalidHandle(f"token {token} is outside the model's vocabulary of 0 to {self.size - 1}")
        return Kind.CONTROL if token in CONTROL else Kind.NORMAL

    def decode(self, ids: list[int], *, special: bool = False, continued: bool = False) -> str:
        shown = (self.pieces[token] for token in ids if special or self.kind(token) is not Kind.CONTROL)
        return b"".join(shown).decode("utf-8", "replace")


class TinyTurns:
    """A chat template: ``<turn>u`` text, ``<turn>s`` text, ``<turn>a`` text; each turn ends with a newline."""

    formats = Formats()

    def __init__(self) -> None:
        self._encode = TinyTokenizer().encode

    def prefix(self) -> list[int]:
        return [TinyTokenizer.bos]

    def preamble(self, thinking: bool | None = None) -> list[int]:
        return self._encode("<turn>s.\n", special=True)

    def system(self, text: str, thinking: bool | None = None) -> list[int]:
        return self._turn("s", text)

    def user(self, text: str) -> list[int]:
        return self._turn("u", text)

    def assistant(self, text: str) -> list[int]:
        return self._turn("a", text)

    def cue(self, thinking: bool | None = None) -> list[int]:
        return self._encode("<turn>a", special=True)

    def seal(self) -> list[int]:
        return self._encode("<eos>\n", special=True)

    def _turn(self, role: str, text: str) -> list[int]:
        return [*self._encode(f"<turn>{role}", special=True), *self._encode(text), *self._encode("\n")]
