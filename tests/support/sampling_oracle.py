"""Samplers in plain Python, one row of logits at a time: an oracle that shares nothing with the epilogues."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pie_edge.program import threefry

Row = list[float]


def softmax(row: Sequence[float]) -> Row:
    top = max(row)
    weights = [math.exp(x - top) for x in row]
    return [weight / sum(weights) for weight in weights]


def log_softmax(row: Sequence[float]) -> Row:
    top = max(row)
    total = math.log(sum(math.exp(x - top) for x in row)) + top
    return [x - total for x in row]


def entropy(row: Sequence[float]) -> float:
    return -sum(p * math.log(p) for p in softmax(row) if p > 0)


def cut(row: Row, kept: set[int]) -> Row:
    return [x if token in kept else -math.inf for token, x in enumerate(row)]


def likeliest_first(row: Row) -> list[int]:
    return sorted(range(len(row)), key=lambda token: -row[token])


def biased(row: Row, bias: Mapping[int, float]) -> Row:
    return [x + bias.get(token, 0.0) for token, x in enumerate(row)]


def penalised(
    row: Row,
    made: Sequence[int],
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    dry: Mapping[int, float] | None = None,
) -> Row:
    found = list(row)
    for token, count in Counter(made).items():
        x = found[token]
        x = x / repetition if x > 0 else x * repetition
        found[token] = x - presence - frequency * count - (dry or {}).get(token, 0.0)
    return found


def dry_penalties(
    made: Sequence[int], multiplier: float, base: float, allowed: int, breakers: set[int]
) -> dict[int, float]:
    """By its definition: for each token, the longest end of ``made`` that stood before an earlier one of it."""
    found = {}
    for token in set(made) - breakers:
        longest = 0
        for place in (place for place, one in enumerate(made) if one == token):
            length = 0
            while length < place and made[place - 1 - length] == made[-1 - length]:
                if made[-1 - length] in breakers:
                    break
                length += 1
            longest = max(longest, length)
        if longest >= allowed:
            found[token] = multiplier * base ** (longest - allowed)
    return found


def top_k(row: Row, k: int) -> Row:
    least = row[likeliest_first(row)[k - 1]]
    return [x if x >= least else -math.inf for x in row]


def top_p(row: Row, p: float) -> Row:
    probabilities, kept, total = softmax(row), set(), 0.0
    for token in likeliest_first(row):
        kept.add(token)
        total += probabilities[token]
        if total >= p:
            break
    return cut(row, kept)


def min_p(row: Row, p: float) -> Row:
    probabilities = softmax(row)
    return cut(row, {token for token, q in enumerate(probabilities) if q >= p * max(probabilities)})


def typical(row: Row, share: float) -> Row:
    probabilities, whole = softmax(row), entropy(row)
    distance = [abs(-math.log(p) - whole) if p > 0 else math.inf for p in probabilities]
    kept, total = set(), 0.0
    for token in sorted(range(len(row)), key=lambda token: distance[token]):
        if total >= share:
            break
        kept.add(token)
        total += probabilities[token]
    return cut(row, kept)


def mirostat(row: Row, bound: float) -> Row:
    """Log probabilities; those whose surprise in bits is above the bound are gone, but never the likeliest."""
    logprobs = log_softmax(row)
    kept = {token for token, x in enumerate(logprobs) if -x / math.log(2) <= bound}
    return cut(logprobs, kept or {likeliest_first(logprobs)[0]})


def drawn(row: Row, seed: tuple[int, int], position: int) -> int:
    """The token that the first draw of an epilogue takes."""
    key = threefry.stream(seed, position, 0)
    noise = [-math.log(-math.log(threefry.uniform(threefry.word(key, token)))) for token in range(len(row))]
    return max(range(len(row)), key=lambda token: row[token] + noise[token])
