"""A checkpoint out of nothing: a llama of a billion parameters or so in 4 bits, whose weights come from a seed, so that a machine
with a card and no network has something to run: ``python -m benchmarks.seeded FILE [--size tiny]``.

What it says means nothing, but each layer's values stay near one, and it says the same on every backend.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GROUP, _BLOCK = 32, 20
"""Columns of a block of Q4_1, and its bytes: scale, minimum, and 16 of codes."""
_SPREAD = 4.61
"""Of codes from 0 to 15 that are all as likely."""


@dataclass(frozen=True)
class Size:
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """Names, rows and columns."""
        head = self.hidden // self.heads
        yield "token_embd", self.vocabulary, self.hidden
        for layer in range(self.layers):
            for name, rows, columns in (
                ("attn_q", self.hidden, self.hidden),
                ("attn_k", self.kv_heads * head, self.hidden),
                ("attn_v", self.kv_heads * head, self.hidden),
                ("attn_output", self.hidden, self.hidden),
                ("ffn_gate", self.inner, self.hidden),
                ("ffn_up", self.inner, self.hidden),
                ("ffn_down", self.hidden, self.inner),
            ):
                yield f"blk.{layer}.{name}", rows, columns

    @property
    def parameters(self) -> int:
        return sum(rows * columns for _, rows, columns in self.matrices)


SIZES: Mapping[str, Size] = {
    "billion": Size(16, 2048, 8192, 32, 8, 49152),
    "tiny": Size(2, 128, 256, 2, 1, 512),
}


def blocks(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """[rows, bytes] of Q4_1: weights of mean zero that keep the size of what they are multiplied with."""
    found = rng.integers(0, 256, (rows, columns // _GROUP, _BLOCK), np.uint8)
    scale = 1.0 / (_SPREAD * columns**0.5)
    found[..., :4] = np.array([scale, -7.5 * scale], np.float16).view(np.uint8)
    return found.reshape(rows, -1)


def write(path: Path, size: Size, seed: int = 1) -> None:
    """As llama.cpp's converter would, tied, with a vocabulary of bytes and then names."""
    import gguf

    rng, writer = np.random.default_rng(seed), gguf.GGUFWriter(path, "llama")
    head = size.hidden // size.heads
    for key, value in {
        "context_length": 4096,
        "embedding_length": size.hidden,
        "block_count": size.layers,
        "feed_forward_length": size.inner,
        "attention.head_count": size.heads,
        "attention.head_count_kv": size.kv_heads,
        "rope.dimension_count": head,
        "vocab_size": size.vocabulary,
    }.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    _add_tokenizer(writer, size.vocabulary)
    for name, rows, columns in size.matrices:
        data = blocks(rng, rows, columns)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    ones = np.ones(size.hidden, np.float32)
    for name in ("output_norm", *(f"blk.{n}.{part}_norm" for n in range(size.layers) for part in ("attn", "ffn"))):
        writer.add_tensor(f"{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, vocabulary: int) -> None:
    from pie_edge.tokenizer.byte_level import ALPHABET
    from pie_edge.tokenizer.vocabulary import Kind

    letters = {byte: character for character, byte in ALPHABET.items()}
    spaces = letters[32] * 2  # what the one merge makes: without any it would be no BPE
    ordinary = [*(letters[byte] for byte in range(256)), spaces]
    # Ordinary ones, so that answers show.
    names = [f"{letters[32]}w{n}" for n in range(vocabulary - len(ordinary) - 1)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*ordinary, *names, "<|end|>"])
    writer.add_token_types([int(Kind.NORMAL)] * (vocabulary - 1) + [int(Kind.CONTROL)])
    writer.add_token_merges([f"{letters[32]} {letters[32]}"])
    writer.add_eos_token_id(vocabulary - 1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", choices=SIZES, default="billion")
    given = parser.parse_args(argv)
    if not given.file.exists():
        given.file.parent.mkdir(parents=True, exist_ok=True)
        made = given.file.with_name(given.file.name + ".part")
        write(made, SIZES[given.size])
        made.replace(given.file)
    print(
        f"{given.file}: {SIZES[given.size].parameters / 1e9:.2f} B parameters, {given.file.stat().st_size / 1e6:.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
