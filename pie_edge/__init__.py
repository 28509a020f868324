"""pie-edge: a programmable LLM runtime for the edge. The way of a token is in ``docs/architecture.md``."""

__version__ = "0.1.0"
