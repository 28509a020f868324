"""A chat model that says what a test wants: tiny weights by which each token has one successor, and a template that picks the
first one by the last message.

Attention and feed-forward layers add nothing, so the logits after a token are a row of the head. A *script* is a list of
pieces, each one token of the vocabulary, followed by the end of the turn; a message whose text holds ``[name]`` is answered by
the script of that name, and one that begins with thinking goes on after that where thinking is off. After any other message, and
after any other token, the logits are random, so draws differ by seed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from tests.support.family_checkpoints import write_snapshot
from tests.support.family_configs import LLAMA
from tests.support.vocabularies import LETTERS

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
HIDDEN = 512
CONTEXT = 1024
SURE = 16.0
"""How far the scripted token's logit is above the others'."""

TEMPLATE = """\
{%- if messages[0].role == 'system' or tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
    {%- if tools %}{{ '\\nTools:' }}{% for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
        {{- '\\nCall one as <tool_call>{"name": , "arguments": }</tool_call>.' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content and loop.last %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
        {{- message.content or '' }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- for name in NAMES %}
        {%- if messages[-1].content and '[' + name + ']' in messages[-1].content %}{{ '<|' + name + '|>' }}{% endif %}
    {%- endfor %}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think></think>' }}
        {%- for name in UNTHINKING %}
            {%- if messages[-1].content and '[' + name + ']' in messages[-1].content %}{{ '<|' + name + '|>' }}{% endif %}
        {%- endfor %}
    {%- endif %}
{%- endif %}"""


class Scripted:
    """``scripts`` by name, each the pieces of an answer. A name becomes a control token, ``<|name|>``, that opens the answer.

    The script without a name comes after a new line: where no other one opens the answer.

    A piece has one successor, in all scripts. ``write`` makes the checkpoint, a folder of Hugging Face's files.
    """

    def __init__(self, scripts: Mapping[str, Sequence[str]], *, seed: int = 0) -> None:
        self.scripts = {name: [*pieces] for name, pieces in scripts.items()}
        self._seed = seed
        self._openers = {name: f"<|{name}|>" if name else "Ċ" for name in scripts}
        self._following: dict[str, str] = {}

    @property
    def _control(self) -> list[str]:
        return [*CONTROL, *(opener for name, opener in self._openers.items() if name)]

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """Bytes, control tokens, and the pieces."""
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        library = tokenizers.Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        library.decoder = decoders.ByteLevel()
        library.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in self._control])
        pieces = dict.fromkeys(piece for pieces in self.scripts.values() for piece in pieces)
        known = library.get_vocab()
        library.add_tokens([AddedToken(piece, normalized=False) for piece in pieces if piece not in known])
        return library

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """``[vocabulary, vocabulary]``: row i is what comes after token i."""
        ids, size = self.tokenizer.get_vocab(), self.tokenizer.get_vocab_size()
        found = np.random.default_rng(self._seed).normal(size=(size, size)).astype(np.float32)
        found[:, [ids[text] for text in self._control]] -= 20.0
        letters = {letter for letter in pre_tokenizers.ByteLevel.alphabet() if letter.isascii() and letter.isalnum()}
        # Random texts are letters: of no other tokens, and least of all of pieces, that would begin a script.
        found[:, [number for text, number in ids.items() if text not in letters]] -= 10.0
        for name, pieces in self.scripts.items():
            path = [self._openers[name], *pieces, "<|im_end|>"]
            for before, after in itertools.pairwise(path):
                if self._following.setdefault(before, after) != after:
                    raise ValueError(f"{before!r} comes in two places; cut the script {name!r} into other pieces")
                found[ids[before], ids[after]] = SURE
        return found

    def id(self, text: str) -> int:
        """Of a token, as the vocabulary has it: ``Ċ`` is a new line."""
        return self.tokenizer.get_vocab()[text]

    def name(self, token: int) -> str:
        return str(self.tokenizer.id_to_token(token))

    def spelled(self, data: bytes) -> int:
        """The token of these bytes."""
        return self.id(data.decode() if len(data) > 1 else LETTERS[data[0]])

    def row(self, before: str) -> NDArray[np.float32]:
        """The logits after a token."""
        return np.asarray(self.logits[self.id(before)])

    def write(self, folder: Path) -> Path:
        size = self.tokenizer.get_vocab_size()
        if size > HIDDEN:
            raise ValueError(f"the scripts have too many pieces: {size} tokens, the most is {HIDDEN}")
        config = LLAMA | {
            "vocab_size": size,
            "hidden_size": HIDDEN,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "rms_norm_eps": 1e-9,
            "max_position_embeddings": CONTEXT,
            "bos_token_id": None,
            "eos_token_id": self.tokenizer.token_to_id("<|im_end|>"),
        }
        write_snapshot(folder, config, self._weights(size))
        self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(self._config()), encoding="utf-8")
        return folder

    def _config(self) -> dict[str, Any]:
        named = {name: pieces for name, pieces in self.scripts.items() if name}
        unthinking = [name for name, pieces in named.items() if pieces[0] != "<think>"]
        names = f"{{%- set NAMES = {json.dumps(list(named))} %}}"
        names += f"{{%- set UNTHINKING = {json.dumps(unthinking)} %}}"
        return {"eos_token": "<|im_end|>", "chat_template": names + TEMPLATE}

    def _weights(self, size: int) -> dict[str, NDArray[np.float32]]:
        """A one-hot embedding, normalised to the root of the width; layers that add nothing; the logits as the head."""
        zero = np.zeros
        embedding = np.zeros((size, HIDDEN), np.float32)
        embedding[np.arange(size), np.arange(size)] = 1
        head = zero((size, HIDDEN), np.float32)
        head[:, :size] = self.logits.T / np.sqrt(HIDDEN)
        layer = {
            "input_layernorm.weight": zero(HIDDEN, np.float32),
            "post_attention_layernorm.weight": zero(HIDDEN, np.float32),
            "self_attn.q_proj.weight": zero((HIDDEN, HIDDEN), np.float32),
            "self_attn.k_proj.weight": zero((64, HIDDEN), np.float32),
            "self_attn.v_proj.weight": zero((64, HIDDEN), np.float32),
            "self_attn.o_proj.weight": zero((HIDDEN, HIDDEN), np.float32),
            "mlp.gate_proj.weight": zero((32, HIDDEN), np.float32),
            "mlp.up_proj.weight": zero((32, HIDDEN), np.float32),
            "mlp.down_proj.weight": zero((HIDDEN, 32), np.float32),
        }
        return {
            "model.embed_tokens.weight": embedding,
            "model.norm.weight": np.ones(HIDDEN, np.float32),
            "lm_head.weight": head,
            **{f"model.layers.0.{name}": weight for name, weight in layer.items()},
        }
