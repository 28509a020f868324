"""What an inferlet imports: a context to generate from, the model, the chat, the client, and the forward pass itself
(``inferlet.eta``)."""

from inferlet.beam import Beam, beam_search
from inferlet.context import Context
from inferlet.generation import Generation
from inferlet.samplers import Dry, Mirostat, Sampler

__all__ = ["Beam", "Context", "Dry", "Generation", "Mirostat", "Sampler", "beam_search"]
__version__ = "0.1.0"
