"""The forward pass in an inferlet's own hands: contexts, passes, and what is computed from their logits."""

from inferlet.eta.forward import ForwardPass, Output
from inferlet.eta.pipeline import Pipeline
from inferlet.eta.working_set import Geometry, WorkingSet

__all__ = ["ForwardPass", "Geometry", "Output", "Pipeline", "WorkingSet"]
