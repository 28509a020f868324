"""Tokenizers and chat templates from the model's own file. ``docs/tokenizers.md`` says what is supported and how."""

from pie_edge.tokenizer.detokenizer import Detokenizer
from pie_edge.tokenizer.template import ChatTemplate
from pie_edge.tokenizer.tokenizer import Tokenizer
from pie_edge.tokenizer.turns import Turns

__all__ = ["ChatTemplate", "Detokenizer", "Tokenizer", "Turns"]
