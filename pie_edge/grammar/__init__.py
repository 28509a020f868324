"""What an answer may be: JSON Schema, regular expressions and context-free grammars as masks over the next token."""

from pie_edge.grammar.compiler import Compiler, Grammar, inlined
from pie_edge.grammar.matcher import Matcher
from pie_edge.grammar.source import Source
from pie_edge.grammar.vocabulary import Vocabulary

__all__ = ["Compiler", "Grammar", "Matcher", "Source", "Vocabulary", "inlined"]
