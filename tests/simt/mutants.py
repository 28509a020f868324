"""Mutants of kernels that are compiled once. Each barrier and each bound of the text becomes a site, and the emulator is told of
one site that its barrier is missing, or that its bound is one more or one less."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_BARRIER = re.compile(
    r"(?:__syncthreads|__syncwarp|barrier_start|barrier_expect|barrier_wait|copy_commit|copy_wait<[^;]*?>"
    r"|wgmma_fence|wgmma_commit|wgmma_wait<[^;]*?>)\([^;]*\)(?=;)"
)
"""All that a thread waits by, and what such a wait needs to have been told before."""
_COMPARISON = re.compile(r" (?:<|<=|>|>=) ")
"""Templates' brackets have no spaces around them."""
_NUMBER = re.compile(r"-?[\d.]+(?:e-?\d+)?[uf]?")
_CONSTANT = re.compile(r"[A-Z0-9_ ()+*/-]+")
_ENDS = re.compile(r"[;,?:{}&|^]|[!=]=| (?:<|<=|>|>=) ")
_EMULATED = "ptx.cuh"
"""Which the emulator has its own of."""


@dataclass(frozen=True)
class Site:
    number: int
    file: str
    text: str
    """The call, or the comparison's end with its bound."""
    is_barrier: bool
    nth: int = 1
    """Of those with this text in the file."""

    def __str__(self) -> str:
        return f"{self.file}: {self.text}" + (f" #{self.nth}" if self.nth > 1 else "")

    @property
    def mutants(self) -> tuple[Mutant, ...]:
        return tuple(Mutant(self, by) for by in ((1,) if self.is_barrier else (-1, 1)))


@dataclass(frozen=True)
class Mutant:
    site: Site
    by: int
    """What is added to the bound; of a barrier no matter."""


class Sites:
    """Of all files: their ``texts`` with the sites in them, and what those are."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.found: list[Site] = []
        self._file = ""
        self.texts = {
            file: source if file == _EMULATED else self._text(file, source) for file, source in sources.items()
        }

    def _text(self, file: str, source: str) -> str:
        self._file, lines, unrolled = file, list[str](), False
        for line in source.split("\n"):
            code = line.partition("//")[0]
            lines.append(line if line.startswith(("#", "//")) else self._line(code, unrolled))
            unrolled = line.strip() == "#pragma unroll"
        return "\n".join(lines)

    def _line(self, code: str, unrolled: bool) -> str:
        """With its comparisons' bounds as they may be off by one, and its barriers as they may be missing."""
        changed, at = "", 0
        for match in _COMPARISON.finditer(code):
            bound = code[match.end() : _end_of_operand(code, match.end())].rstrip()
            end = match.end() + len(bound)
            # A number is a case of its own, and no end; and an unrolled loop that counts goes over registers.
            counts = unrolled and "++" in code and _CONSTANT.fullmatch(bound)
            within = match.start() < at  # of another one's bound
            if not within and not _NUMBER.fullmatch(bound) and not counts:
                number = self._add(code[_start_of_operand(code, match.start()) : end], False)
                changed += f"{code[at : match.end()]}simt::bound({number}, {bound})"
                at = end
        return _BARRIER.sub(self._barrier, changed + code[at:])

    def _barrier(self, match: re.Match[str]) -> str:
        return f"(simt::kept({self._add(match[0], True)}) ? (void)({match[0]}) : (void)0)"

    def _add(self, text: str, is_barrier: bool) -> int:
        number, same = len(self.found), [site for site in self.found if site.file == self._file and site.text == text]
        self.found.append(Site(number, self._file, text, is_barrier, len(same) + 1))
        return number


def _end_of_operand(code: str, at: int) -> int:
    """Where a comparison's right side ends, which begins here."""
    depth = 0
    while at < len(code):
        if not depth and (code[at] in ")]" or _ENDS.match(code, at)):
            break
        depth += (code[at] in "([") - (code[at] in ")]")
        at += 1
    return at


def _start_of_operand(code: str, at: int) -> int:
    """Where its left side begins, which ends here: at a word's beginning, as far as names go."""
    depth = 0
    while at:
        before = code[at - 1]
        if not depth and (before in "([;,?:!&|{" or code[:at].endswith(("return ", "= "))):
            break
        depth += (before in ")]") - (before in "([")
        at -= 1
    return at + len(code[at:]) - len(code[at:].lstrip())
