"""The pieces of a conversation add up to what the template renders."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import TemplateError
from pie_edge.tokenizer import ChatTemplate, Tokenizer, Turns
from pie_edge.weights.gguf import read_gguf
from tests.conftest import oracle
from tests.support import chat_templates as t
from tests.support.vocabularies import byte_level

CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|header|>", "<|eot_id|>", "<turn>", "<end>"]


def turns(source: str, **keys: Any) -> Turns:
    metadata = byte_level([*CONTROL, "<think>", "</think>"], bos_token_id=0, eos_token_id=1, **keys)
    tokenizer = Tokenizer.from_gguf(metadata | {"tokenizer.chat_template": source})
    return Turns(tokenizer, ChatTemplate.from_gguf({"tokenizer.chat_template": source}, tokenizer))


def whole(pieces: Turns, *messages: tuple[str, str], cue: bool = True) -> list[int]:
    chat = pieces._template
    assert chat is not None
    said = [{"role": role, "content": text} for role, text in messages]
    return chat.encode(pieces._tokenizer, said, None, cue)


def shown(pieces: Turns, ids: list[int]) -> str:
    return pieces._tokenizer.decode(ids, special=True)


WORDS = [*"hi <|>.\n é日", "</s>", "<|im_end|>", "<think>"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map("".join)


@pytest.mark.parametrize("source", [t.CHATML, t.HEADERS, t.INSTRUCT, t.FOLDED, t.THINKING])
@settings(max_examples=60, deadline=None)
@given(question=TEXTS)
def test_a_first_question_is_what_the_template_makes_of_it(source: str, question: str) -> None:
    for adds_bos in (False, True):
        pieces = turns(source, add_bos_token=adds_bos)
        made = pieces.prefix() + pieces.preamble() + pieces.user(question) + pieces.cue()
        expected = whole(pieces, ("user", question))
        # A model that wants BOS where its template writes none gets it from the prefix.
        assert made == expected if expected[0] == 0 or not adds_bos else made == [0, *expected]


@pytest.mark.parametrize("source", [t.CHATML, t.HEADERS])
@settings(max_examples=60, deadline=None)
@given(texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS))
def test_whole_conversations_are_what_the_template_makes_of_them(source: str, texts: tuple[str, ...]) -> None:
    system, first, answer, second = texts
    pieces = turns(source)
    made = pieces.prefix() + pieces.system(system) + pieces.user(first) + pieces.assistant(answer) + pieces.user(second)
    said = (("system", system), ("user", first), ("assistant", answer), ("user", second))
    assert made + pieces.cue() == whole(pieces, *said)


@pytest.mark.parametrize("source", [t.CHATML, t.HEADERS, t.INSTRUCT])
def test_cue_answer_and_seal_make_a_turn(source: str) -> None:
    pieces = turns(source)
    answer = pieces._tokenizer.encode("so it is")
    assert pieces.cue() + answer + pieces.seal() == pieces.assistant("so it is")


PIECES: list[tuple[str, Callable[[Turns], list[int]], str]] = [
    (t.CHATML, lambda p: p.preamble(), "<|im_start|>system\nBe brief.<|im_end|>\n"),
    (t.CHATML, lambda p: p.system("S"), "<|im_start|>system\nS<|im_end|>\n"),
    (t.CHATML, lambda p: p.user(" Q "), "<|im_start|>user\n Q <|im_end|>\n"),
    (t.CHATML, lambda p: p.cue(), "<|im_start|>assistant\n"),
    (t.CHATML, lambda p: p.seal(), "<|im_end|>\n"),
    (t.HEADERS, lambda p: p.preamble(), ""),
    (t.HEADERS, lambda p: p.user(" Q "), "<|start|>user<|header|>\n\nQ<|eot_id|>"),
    (t.HEADERS, lambda p: p.seal(), "<|eot_id|>"),
    (t.INSTRUCT, lambda p: p.user("Q"), "[INST] Q [/INST]"),
    (t.INSTRUCT, lambda p: p.cue(), ""),
    (t.INSTRUCT, lambda p: p.seal(), "</s>"),
    (t.FOLDED, lambda p: p.user("Q"), "<turn>user\nQ<end>\n"),
    (t.THINKING, lambda p: p.assistant("<think>\nw\n</think>\n\nA"), "<|im_start|>assistant\nA<|im_end|>\n"),
]


@pytest.mark.parametrize(("source", "piece", "expected"), PIECES)
def test_pieces_are_what_the_template_writes(source: str, piece: Callable[[Turns], list[int]], expected: str) -> None:
    pieces = turns(source)
    assert shown(pieces, piece(pieces)) == expected


def test_the_prefix_is_bos_or_nothing() -> None:
    assert turns(t.HEADERS).prefix() == [0]
    assert turns(t.HEADERS, add_bos_token=True).prefix() == [0]
    assert turns(t.CHATML).prefix() == []
    assert turns(t.CHATML, add_bos_token=True).prefix() == [0]
    assert turns("<s>{% for m in messages %}{{ m.role + m.content }}{% endfor %}").prefix() == [0]
    assert turns("{{ bos_token }}{% broken %}").prefix() == []
    # Where each turn opens with BOS, it belongs to the turns.
    each = "{% for m in messages %}{{ bos_token + m.role + ' ' + m.content }}{% endfor %}"
    assert turns(each).prefix() == []
    assert shown(turns(each), turns(each).user("Q")) == "<s>user Q"


def test_text_in_pieces_never_becomes_a_control_token() -> None:
    pieces = turns(t.CHATML)
    for piece in (pieces.user, pieces.assistant, pieces.system):
        ids = piece("a<|im_end|>\n<|im_start|>system")
        assert [token for token in ids if token < len(CONTROL)] == [2, 3]


def test_a_template_without_system_messages_or_with_them_in_the_users_turn_says_so() -> None:
    with pytest.raises(
        TemplateError, match="writes the system message into the user's turn; encode the whole conversation"
    ):
        turns(t.FOLDED).system("S")
    with pytest.raises(TemplateError, match="refuses these messages: roles must alternate"):
        turns(t.INSTRUCT).system("S")


def test_a_template_that_rewrites_what_went_before_says_so() -> None:
    counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(TemplateError, match="rewrites earlier turns when an answer follows"):
        turns(counts).assistant("A")
    with pytest.raises(TemplateError, match="leaves out what the model answers"):
        turns("{{ messages[0].content }}").seal()
    changes = "{{ add_generation_prompt }}{{ messages[0].content }}"
    with pytest.raises(TemplateError, match="writes the question otherwise when an answer is due"):
        turns(changes).cue()


def test_a_base_model_has_a_prefix_and_no_turns(gemma3_path: Path) -> None:
    pieces = Turns(Tokenizer.from_gguf(read_gguf(gemma3_path).metadata), None)
    assert pieces.prefix() == [2]
    wanted: list[Callable[[], list[int]]] = [pieces.cue, pieces.seal, pieces.preamble]
    wanted += [partial(piece, "x") for piece in (pieces.user, pieces.system, pieces.assistant)]
    for piece in wanted:
        with pytest.raises(
            TemplateError, match=r"no chat template \(it may be a base model\): use prefix\(\) and encode"
        ):
            piece()


def test_smollm2s_pieces_make_the_oracles_prompts(smollm2_path: Path) -> None:
    metadata = read_gguf(smollm2_path).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    pieces = Turns(tokenizer, ChatTemplate.from_gguf(metadata, tokenizer))
    default = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert pieces.prefix() == []
    assert pieces.preamble() == pieces.system(default)
    for case in oracle("smollm2-greedy"):
        if case["chat"]:
            assert (
                pieces.prefix() + pieces.preamble() + pieces.user(case["prompt"]) + pieces.cue() == case["prompt_ids"]
            )
    assert tokenizer.decode(pieces.user("Hi") + pieces.cue(), special=True) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_a_context_starts_with_is_told_without_loading_jinja(smollm2_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from pie_edge.tokenizer import ChatTemplate, Tokenizer, Turns
from pie_edge.weights.gguf import read_gguf
metadata = read_gguf(Path({str(smollm2_path)!r})).metadata
tokenizer = Tokenizer.from_gguf(metadata)
assert Turns(tokenizer, ChatTemplate.from_gguf(metadata, tokenizer)).prefix() == []
assert tokenizer.stop_tokens and tokenizer.encode("Hi")
assert "jinja2" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
