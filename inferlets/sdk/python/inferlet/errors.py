"""Errors an inferlet can catch: one class for each code, in the tree of pie-edge's own errors.

PieError
├── UsageError            an argument is wrong
│   └── GrammarError      a grammar that can't be enforced, or a token that it doesn't allow
├── ModelError            the model can't do what was asked
│   ├── ModelNotFound     no model of that name here
│   ├── Unsupported       a known thing that this model or build can't do
│   ├── TokenizerError    text that the tokenizer refuses
│   └── TemplateError     the model has no chat template, or it refuses the conversation
├── BackendError          the device failed
│   ├── OutOfMemory
│   ├── DeviceLost        the device went away in the middle of work
│   └── NotFinite         the model computed NaN or infinity
├── ResourceError         something that this inferlet can't have
│   ├── InvalidHandle     a working set that is gone, or a value out of range
│   ├── OutOfPages        the KV pool is exhausted
│   ├── ContextOverflow   more tokens than the working set or the model holds
│   ├── Irreversible      tokens that can no longer be taken back
│   └── EpilogueError     an epilogue that doesn't type-check
├── HttpError             a request got no answer
│   └── HttpDenied        this inferlet isn't allowed to ask there
└── InferletError         an inferlet ended without a result: a child of this one, or this one has to
    ├── InferletInvalid   it doesn't parse, or has no ``main``
    ├── InferletFailed    it raised; the message ends with the child's own traceback
    ├── InferletTrapped
    ├── InferletTimeout
    ├── InferletMemory
    └── InferletCancelled
"""

from __future__ import annotations


class PieError(Exception):
    """Base of the tree. ``code`` is stable; the message is for people."""

    code = "error"


class UsageError(PieError):
    code = "usage"


class GrammarError(UsageError):
    code = "grammar"


class ModelError(PieError):
    code = "model"


class ModelNotFound(ModelError):
    code = "model-not-found"


class Unsupported(ModelError):
    code = "unsupported"


class TokenizerError(ModelError):
    code = "tokenizer"


class TemplateError(ModelError):
    code = "template"


class BackendError(PieError):
    code = "backend"


class OutOfMemory(BackendError):
    code = "out-of-memory"


class DeviceLost(BackendError):
    code = "device-lost"


class NotFinite(BackendError):
    code = "not-finite"


class ResourceError(PieError):
    code = "resource"


class InvalidHandle(ResourceError):
    code = "invalid-handle"


class OutOfPages(ResourceError):
    code = "out-of-pages"


class ContextOverflow(ResourceError):
    code = "context-overflow"


class Irreversible(ResourceError):
    code = "irreversible"


class EpilogueError(ResourceError):
    code = "epilogue"


class HttpError(PieError):
    code = "http"


class HttpDenied(HttpError):
    code = "http-denied"


class InferletError(PieError):
    code = "inferlet"


class InferletInvalid(InferletError):
    code = "inferlet-invalid"


class InferletFailed(InferletError):
    code = "inferlet-failed"


class InferletTrapped(InferletError):
    code = "inferlet-trapped"


class InferletTimeout(InferletError):
    code = "inferlet-timeout"


class InferletMemory(InferletError):
    code = "inferlet-memory"


class InferletCancelled(InferletError):
    code = "inferlet-cancelled"


def _tree(kind: type[PieError]) -> list[type[PieError]]:
    return [kind] + [child for direct in kind.__subclasses__() for child in _tree(direct)]


_BY_CODE = {kind.code: kind for kind in _tree(PieError)}


def from_code(code: str, message: str) -> PieError:
    """The error that ``code`` stands for. One that this SDK doesn't know is a ``PieError`` that keeps its code."""
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(message)
    error = PieError(message)
    error.code = code
    return error
