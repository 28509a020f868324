"""The tokenizer of a checkpoint: whatever its files hold, a tokenizer or an error that names the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pie_edge.cli.model import describe
from pie_edge.errors import InvalidHandle, ModelError, TokenizerError
from pie_edge.text import open_text
from pie_edge.tokenizer.vocabulary import Kind
from pie_edge.weights.checkpoint import open_checkpoint
from tests.pure.test_tokenizer_json import byte_level_json
from tests.support.checkpoints import STRING, gguf_bytes, safetensors_bytes, small_safetensors, write
from tests.support.family_checkpoints import make_weights, write_snapshot
from tests.support.family_configs import LLAMA
from tests.support.vocabularies import byte_level

GENERATION, CONFIG = "generation_config.json", "tokenizer_config.json"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A safetensors model that is whole as far as its text goes."""
    write(tmp_path / "model.safetensors", safetensors_bytes(*small_safetensors()))
    write(tmp_path / "config.json", b'{"model_type": "llama"}')
    write(tmp_path / "tokenizer.json", byte_level_json(byte_level()).encode())
    return tmp_path


def stop_tokens(folder: Path) -> frozenset[int]:
    with open_checkpoint(folder) as checkpoint:
        tokenizer, _ = open_text(checkpoint)
    return frozenset(tokenizer.stop_tokens)


def put(folder: Path, file: str, content: Any) -> None:
    (folder / file).write_text(json.dumps(content))


def test_the_ends_of_the_generation_configuration_are_stop_tokens(snapshot: Path) -> None:
    put(snapshot, GENERATION, {"eos_token_id": 5})
    assert 5 in stop_tokens(snapshot)
    put(snapshot, GENERATION, {"eos_token_id": [6, 7]})
    assert {6, 7} <= stop_tokens(snapshot)
    put(snapshot, GENERATION, {"eos_token_id": None})
    stop_tokens(snapshot)


def test_ids_of_padding_stand_for_nothing(snapshot: Path) -> None:
    with open_checkpoint(snapshot) as checkpoint:
        plain, _ = open_text(checkpoint)
        padded, _ = open_text(checkpoint, plain.size + 10)
        same, _ = open_text(checkpoint, plain.size - 1)
    assert (padded.size, same.size) == (plain.size + 10, plain.size)
    ids = padded.encode("a b")
    assert padded.decode([ids[0], plain.size, plain.size + 9, *ids[1:]]) == "a b"
    assert padded.token_bytes(plain.size) == padded.vocabulary()[-1] == b""
    assert padded.kind(plain.size) == Kind.UNUSED
    assert padded.control_tokens == plain.control_tokens
    with pytest.raises(InvalidHandle, match="outside the model's vocabulary"):
        padded.decode([plain.size + 10])


@pytest.mark.parametrize("file", [GENERATION, CONFIG])
@pytest.mark.parametrize("wrong", ["</s>", 1.5, True, -1, 2**40, {"id": 1}, ["a"], [[1]], [1, None]])
def test_an_end_that_is_no_token_is_an_error_of_the_checkpoint(snapshot: Path, file: str, wrong: Any) -> None:
    put(snapshot, file, {"eos_token_id": wrong})
    with pytest.raises(TokenizerError, match=r"model.safetensors: eos_token_id is .* must be a token's id"):
        stop_tokens(snapshot)


@pytest.mark.parametrize("key", ["add_bos_token", "bos_token", "eos_token", "chat_template", "eos_token_id"])
@pytest.mark.parametrize(
    "value", [0, 1.5, "x", "{% if", [], [1], [{}], [{"name": 1, "template": 2}], {}, {"content": 3}]
)
def test_any_value_gives_a_tokenizer_or_an_error_of_the_checkpoint(snapshot: Path, key: str, value: Any) -> None:
    for file in (GENERATION, CONFIG):
        put(snapshot, file, {key: value})
        try:
            stop_tokens(snapshot)
        except ModelError as error:
            assert str(snapshot) in error.message  # noqa: PT017


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff", b""])
@pytest.mark.parametrize("file", [GENERATION, CONFIG, "tokenizer.json"])
def test_a_damaged_file_is_named(snapshot: Path, file: str, content: bytes) -> None:
    write(snapshot / file, content)
    with pytest.raises(ModelError) as refused:
        stop_tokens(snapshot)
    assert str(snapshot) in refused.value.message
    assert file in refused.value.message


def test_a_model_without_a_tokenizer_is_shown_as_one_that_does_not_run(snapshot: Path, tmp_path: Path) -> None:
    (snapshot / "tokenizer.json").unlink()
    with open_checkpoint(snapshot) as checkpoint, pytest.raises(TokenizerError, match=r"no tokenizer.json beside it"):
        open_text(checkpoint)
    (tmp_path / "silent").mkdir()
    path = write(tmp_path / "silent" / "m.gguf", gguf_bytes({"general.architecture": (STRING, "llama")}, {}).data)
    with open_checkpoint(path) as checkpoint, pytest.raises(TokenizerError, match=r"m.gguf carries no tokenizer"):
        open_text(checkpoint)
    whole = write_snapshot(tmp_path / "whole", LLAMA, make_weights(LLAMA))
    with open_checkpoint(whole) as checkpoint:
        facts = describe(checkpoint)
    assert facts["runs"] is False
    assert "has no tokenizer.json beside it" in facts["reason"]
    write(whole / "tokenizer.json", byte_level_json(byte_level()).encode())
    with open_checkpoint(whole) as checkpoint:
        assert describe(checkpoint)["runs"] is True
