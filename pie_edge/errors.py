"""Every error pie-edge raises on purpose, as one tree.

    PieError
    ├── UsageError            the command line or an argument is wrong
    │   ├── ConfigError       a setting is unknown or has the wrong type
    │   └── GrammarError      a grammar that can't be enforced, or a token that it doesn't allow
    ├── ModelError            a checkpoint can't be used
    │   ├── ModelNotFound     no such model here or at its source
    │   ├── FetchFailed       it is there, and didn't arrive: the network, the index, the disk
    │   ├── BadCheckpoint     the file is truncated, corrupt or contradicts itself
    │   ├── Unsupported       a known thing that this build or backend can't do
    │   ├── TokenizerError    the tokenizer is missing or can't be built
    │   └── TemplateError     the chat template is missing or refuses the messages
    ├── BackendError          a device can't be used
    │   ├── BackendUnavailable  not on this machine; the message says what would help
    │   ├── OutOfMemory       an allocation didn't fit
    │   ├── DeviceLost        the device went away in the middle of work
    │   └── NotFinite         a pass gave NaN or infinity where logits should be
    ├── ResourceError         an inferlet asked for what it can't have
    │   ├── InvalidHandle     an id the inferlet doesn't own, or a value out of range
    │   ├── OutOfPages        the KV pool is exhausted
    │   ├── ContextOverflow   more tokens than the context or the model holds
    │   ├── Irreversible      tokens that can no longer be taken back
    │   └── EpilogueError     an epilogue that doesn't type-check
    ├── HttpError             a request of an inferlet's got no answer
    │   └── HttpDenied        this inferlet isn't allowed to ask there
    ├── ServerError           a server can't take a request
    │   ├── NotReady          its model is loading, or its engine is started anew
    │   ├── Overloaded        as many requests wait as it takes
    │   ├── Disconnected      the connection to it, or to its engine, has ended
    │   ├── Unauthorized      it wants an API key, and has none or another one
    │   └── ProtocolError     what came over the connection is no message of the protocol
    └── InferletError         the inferlet itself failed
        ├── InferletInvalid   it doesn't parse, or has no ``main``
        ├── InferletFailed    it raised; ``traceback`` is the guest's own
        ├── InferletTrapped   the Wasm guest trapped
        ├── InferletTimeout   it ran past its time
        ├── InferletMemory    it hit its memory ceiling
        └── InferletCancelled it was cancelled from outside

Messages say who asked, what was asked, what there is, and the remedy. ``code`` is the stable
name that crosses the Wasm boundary and the wire.
"""

from __future__ import annotations


class PieError(Exception):
    """Base of the tree. ``code`` is stable; the message is for people."""

    code = "error"

    @property
    def message(self) -> str:
        return str(self)


class UsageError(PieError):
    code = "usage"


class ConfigError(UsageError):
    code = "config"


class GrammarError(UsageError):
    code = "grammar"


class ModelError(PieError):
    code = "model"


class ModelNotFound(ModelError):
    code = "model-not-found"


class FetchFailed(ModelError):
    code = "fetch-failed"


class BadCheckpoint(ModelError):
    code = "bad-checkpoint"


class Unsupported(ModelError):
    code = "unsupported"


class TokenizerError(ModelError):
    code = "tokenizer"


class TemplateError(ModelError):
    code = "template"


class BackendError(PieError):
    code = "backend"


class BackendUnavailable(BackendError):
    code = "backend-unavailable"


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
    """``tokens`` is how many there would be, and ``limit`` how many there may be, where both are known; ``part`` says of several
    texts which it is."""

    code = "context-overflow"

    def __init__(
        self, message: str, tokens: int | None = None, limit: int | None = None, part: int | None = None
    ) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit
        self.part = part


class Irreversible(ResourceError):
    code = "irreversible"


class EpilogueError(ResourceError):
    code = "epilogue"


class HttpError(PieError):
    code = "http"


class HttpDenied(HttpError):
    code = "http-denied"


class ServerError(PieError):
    code = "server"


class NotReady(ServerError):
    code = "not-ready"


class Overloaded(ServerError):
    code = "overloaded"


class Disconnected(ServerError):
    code = "disconnected"


class Unauthorized(ServerError):
    code = "unauthorized"


class ProtocolError(ServerError):
    """``request`` is the id of the request that is wrong; 0 where there is none that could be answered."""

    code = "protocol"

    def __init__(self, message: str, request: int = 0) -> None:
        super().__init__(message)
        self.request = request


class InferletError(PieError):
    """``traceback`` is the guest's own text, with the user's file and line; ``cause`` is the code of the pie-edge error that it
    didn't catch, if it was one."""

    code = "inferlet"

    def __init__(self, message: str, traceback: str = "", cause: str | None = None) -> None:
        super().__init__(message)
        self.traceback = traceback
        self.cause = cause


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


def by_code(code: str) -> type[PieError]:
    """The class whose ``code`` this is; ``PieError`` for a code this build doesn't know."""
    pending: list[type[PieError]] = [PieError]
    while pending:
        kind = pending.pop()
        if kind.code == code:
            return kind
        pending += kind.__subclasses__()
    return PieError
