"""What tells one model from another, without reading all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from pie_edge.weights.checkpoint import Checkpoint
from pie_edge.weights.source import Wanted

_SAMPLE = 512  # bytes from the beginning and from the end of each tensor


def fingerprint(checkpoint: Checkpoint, read: Iterable[Wanted] = ()) -> str:
    """A digest over the architecture, every tensor's name, shape, encoding and length, and a sample of its bytes.

    A fine-tuned copy differs in nearly all of them. ``read`` are the weights as the family reads them: which of LongRoPE's
    factors are in use is a setting, and keys turned by one set are no good beside the other's. It takes milliseconds, where
    the digest of the whole file takes seconds.
    """
    digest = hashlib.sha256(checkpoint.architecture.encode())
    held = {part.name: part for tensor in checkpoint.tensors.values() for part in tensor.parts}
    for name in sorted(held):
        tensor = held[name]
        described = [name, list(tensor.shape), tensor.encoding, tensor.nbytes]
        digest.update(json.dumps(described).encode())
        view, size = tensor.span.view(), tensor.nbytes
        digest.update(view[:_SAMPLE])
        digest.update(view[max(size - _SAMPLE, 0) :])
    for weight in read:
        digest.update(json.dumps([weight.name, weight.source, weight.values]).encode())
    return digest.hexdigest()
