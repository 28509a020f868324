"""Tokenizers read from tokenizer.json give what those read from GGUF give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import Tokenizer
from pie_edge.tokenizer.vocabulary import Kind
from pie_edge.weights.gguf import read_gguf
from tests.conftest import oracle
from tests.support.vocabularies import byte_level, sentencepiece


def added(metadata: Mapping[str, Any], library: Library) -> Library:
    tokens = list(zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True))
    control = [text for text, kind in tokens if kind in (Kind.CONTROL, Kind.UNKNOWN)]
    library.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    library.add_tokens([AddedToken(text, normalized=False) for text, kind in tokens if kind == Kind.USER_DEFINED])
    return library


def by_text(metadata: Mapping[str, Any]) -> dict[str, int]:
    return {text: token for token, text in enumerate(metadata["tokenizer.ggml.tokens"])}


def byte_level_json(metadata: Mapping[str, Any]) -> str:
    library = Library(models.BPE(by_text(metadata), [tuple(m.split()) for m in metadata["tokenizer.ggml.merges"]]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    library.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    library.decoder = decoders.ByteLevel()
    return str(added(metadata, library).to_str())


def sentencepiece_json(metadata: Mapping[str, Any], scheme: str = "none") -> str:
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    kinds = metadata["tokenizer.ggml.token_type"]
    normal = {text: scores[n] for n, text in enumerate(tokens) if kinds[n] == Kind.NORMAL}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(normal, key=lambda piece: -normal[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
    library = Library(models.BPE(by_text(metadata), merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    if scheme == "first":
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif scheme == "always":
        library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    else:
        library.normalizer = replace
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return str(added(metadata, library).to_str())


def same(model: str, path: Path, text: str, config: Mapping[str, Any]) -> None:
    from_gguf = Tokenizer.from_gguf(read_gguf(path).metadata)
    from_json = Tokenizer.from_json(text, config)
    for case in oracle(f"{model}-tokens"):
        assert from_json.encode(case["text"], special=True) == case["ids_with_special_parsed"]
        assert from_json.encode(case["text"]) == case["ids_plain"]
        assert from_json.decode(case["ids_plain"]) == case["text"]
    awkward = "▁a ▁▁ b▁ \x04 \U00040000 </s><|im_end|><eos>é"
    assert from_json.encode(awkward) == from_gguf.encode(awkward)
    source = Path(__file__).read_text(encoding="utf-8")
    assert from_json.encode(source) == from_gguf.encode(source)
    assert from_json.vocabulary() == from_gguf.vocabulary()
    for fact in ("size", "bos", "eos", "stop_tokens", "adds_bos", "control_tokens"):
        assert getattr(from_json, fact) == getattr(from_gguf, fact), fact


def test_smollm2_is_the_same_from_json(smollm2_path: Path) -> None:
    text = byte_level_json(read_gguf(smollm2_path).metadata)
    same("smollm2", smollm2_path, text, {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}})


def test_gemma_is_the_same_from_json(gemma3_path: Path) -> None:
    text = sentencepiece_json(read_gguf(gemma3_path).metadata)
    config = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True, "eos_token_id": [1, 106]}
    same("gemma3", gemma3_path, text, config)


SMALL = sentencepiece({"▁": -9, "x": -9, "y": -9, "▁x": -1, ">": -9})


@pytest.mark.parametrize("scheme", ["none", "first", "always"])
def test_spaces_before_text_are_put_and_taken_as_the_file_says(scheme: str) -> None:
    tokenizer = Tokenizer.from_json(sentencepiece_json(SMALL, scheme))
    ids = {data: token for token, data in enumerate(tokenizer.vocabulary())}
    x, spaced, end = ids[b"x"], ids[b" x"], ids[b"</s>"]
    expected = {"none": [x, end, x], "first": [spaced, end, x], "always": [spaced, end, spaced]}[scheme]
    assert tokenizer.encode("x</s>x", special=True) == expected
    assert tokenizer.decode(expected, special=True) == "x</s>x"
    assert tokenizer.decode(tokenizer.encode("x y")) == "x y"
    guarded = "x</\U000f0000s>x</s>x"
    assert tokenizer.decode(tokenizer.encode_guarded(guarded, "\U000f0000"), special=True) == "x</s>x</s>x"


def test_bos_is_what_the_files_post_processor_adds_or_its_configuration_names() -> None:
    library = Library.from_str(byte_level_json(byte_level(["<s>", "</s>"])))
    bare = Tokenizer.from_json(library.to_str())
    assert (bare.bos, bare.prefix(), bare.eos, set(bare.stop_tokens)) == (None, [], None, {1})
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    assert Tokenizer.from_json(library.to_str()).prefix() == [0]
    assert (bare.suffix(), Tokenizer.from_json(library.to_str()).suffix()) == ([], [1])
    assert Tokenizer.from_json(bare_json(), {"eos_token": "</s>", "add_eos_token": True}).suffix() == [1]
    keys = {"eos_token_id": 1, "add_eos_token": True}
    assert Tokenizer.from_gguf(byte_level(["<s>", "</s>"], **keys)).suffix() == [1]
    assert Tokenizer.from_gguf(byte_level(["<s>", "</s>"], eos_token_id=1)).suffix() == []
    assert Tokenizer.from_json(library.to_str()).encode("a") == bare.encode("a")
    assert Tokenizer.from_json(library.to_str(), {"add_bos_token": False}).prefix() == []
    named = Tokenizer.from_json(bare_json(), {"bos_token": "</s>", "add_bos_token": True, "eos_token_id": [0]})
    assert (named.prefix(), named.eos, set(named.stop_tokens)) == ([1], 0, {0, 1})


def bare_json() -> str:
    return byte_level_json(byte_level(["<s>", "</s>"]))


def test_text_bytes_and_a_path_are_the_same_source(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(bare_json(), encoding="utf-8")
    sources = (bare_json(), bare_json().encode(), path, str(path))
    assert len({tuple(Tokenizer.from_json(source).encode("naïve <s>", special=True)) for source in sources}) == 1


def test_truncation_and_padding_in_the_file_are_ignored() -> None:
    library = Library.from_str(bare_json())
    library.enable_truncation(2)
    library.enable_padding(length=64)
    assert Tokenizer.from_json(library.to_str()).encode("abcdef") == Tokenizer.from_json(bare_json()).encode("abcdef")


def test_special_tokens_swallow_the_white_space_that_the_file_says() -> None:
    library = Library.from_str(bare_json())
    library.add_special_tokens([AddedToken("<m>", lstrip=True, rstrip=True)])
    tokenizer = Tokenizer.from_json(library.to_str())
    assert tokenizer.decode(tokenizer.encode("a <m> b", special=True), special=True) == "a<m>b"


def test_files_that_are_no_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"can't be read.*import the model again"):
        Tokenizer.from_json(tmp_path / "missing.json")
    for broken in (b"", b"{", b"[]", b'{"version": "1.0"}', bare_json()[:1000].encode(), b"\xff\xfe"):
        with pytest.raises(TokenizerError, match=r"damaged or of an unknown kind"):
            Tokenizer.from_json(broken)


def test_a_kind_of_model_that_is_not_supported_is_named() -> None:
    library = Library(models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(TokenizerError, match="holds a WordLevel model; supported are BPE and Unigram"):
        Tokenizer.from_json(json.dumps(json.loads(library.to_str())))
