"""The formats in which models write reasoning and calls of tools, read as they come."""

from pie_edge.tokenizer.formats.decoder import Decoder, TokenDecoder
from pie_edge.tokenizer.formats.detect import Formats, detect
from pie_edge.tokenizer.formats.events import joined

__all__ = ["Decoder", "Formats", "TokenDecoder", "detect", "joined"]
