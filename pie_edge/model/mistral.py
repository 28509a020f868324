"""The mistral family: llama's layers with a window (arXiv:2310.06825). Its GGUF files say ``llama``."""

from __future__ import annotations

from dataclasses import replace

from pie_edge.model import layers, llama
from pie_edge.model.llama import LlamaSpec, trace, weights
from pie_edge.model.spec import Facts

__all__ = ["read", "trace", "weights"]


def read(facts: Facts) -> LlamaSpec:
    return replace(llama.read(facts), window=layers.window_of(facts, 4096))
