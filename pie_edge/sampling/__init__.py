"""The user-traced epilogue: from an untrusted guest's wire form to a Program over rows of logits (``docs/epilogues.md``)."""

from pie_edge.sampling.epilogue import Epilogue, parse
from pie_edge.sampling.lower import Pool
from pie_edge.sampling.presets import Preset, PresetCall, recognise

__all__ = ["Epilogue", "Pool", "Preset", "PresetCall", "parse", "recognise"]
