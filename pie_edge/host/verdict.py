"""Why an inferlet ended without a result, as one of InferletError's kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pie_edge.errors import InferletError, InferletFailed, InferletInvalid, InferletMemory, InferletTrapped
from pie_edge.host.wasi import GuestExitError

if TYPE_CHECKING:
    from wasmtime import WasmtimeError

    from pie_edge.host.guest import Guest
    from pie_edge.host.wasm.fiber import HostFunctionError

_NOTE = "please report it"


def of_failure(guest: Guest, code: str, message: str, traceback: str, cause: str | None) -> InferletError:
    """What the language component reported."""
    if code == InferletMemory.code:
        return InferletMemory(_memory(guest), traceback)
    kind = InferletInvalid if code == InferletInvalid.code else InferletFailed
    return kind(f"{guest.name}: {message}", traceback, cause)


def of_trap(guest: Guest, trap: WasmtimeError) -> InferletError:
    told = str(trap)
    if "call stack exhausted" in told:
        return InferletTrapped(f"{guest.name} recursed too deeply for its stack; use a loop")
    if "exceeds memory limits" in told or _ran_out(guest, told):
        return InferletMemory(_memory(guest))
    reason = _reason(told)
    last = guest.last_words.strip().splitlines()
    return InferletTrapped(f"{guest.name} crashed: {reason}" + (f" ({last[0]})" if last else ""))


def of_fault(guest: Guest, fault: HostFunctionError) -> BaseException:
    """A host function raised. What a caller's own ``on_text`` or ``on_log`` raised goes back to that caller."""
    cause = fault.__cause__
    if isinstance(cause, GuestExitError):
        return InferletFailed(f"{guest.name}: {cause}; return from main instead")
    if guest.callback_error is not None:
        return guest.callback_error
    if cause is not None and not isinstance(cause, Exception):
        return cause  # the user's interrupt, which happened to arrive here
    return InferletTrapped(f"{guest.name} was stopped by a fault of pie-edge's own ({fault}); {_NOTE}")


def of_ours(guest: Guest, error: Exception) -> InferletError:
    return InferletTrapped(
        f"{guest.name} was stopped by a fault of pie-edge's own ({type(error).__name__}: {error}); {_NOTE}"
    )


def _ran_out(guest: Guest, trap: str) -> bool:
    """Whether memory was what it lacked. It may lack it for saying so, too: then the interpreter traps somewhere without a word,
    as it does for no other reason, or an exception leaves its runner, which catches all others, without a traceback."""
    words = guest.last_words
    if "MemoryError" in words or "memory allocation" in words:
        return True
    return "wasm trap" in trap and (
        not words.strip() or ("threw an unexpected exception" in words and "Traceback" not in words)
    )


def _memory(guest: Guest) -> str:
    return (
        f"{guest.name} needs more than its {guest.limits.memory // 2**20} MiB of memory; hold less, or raise limits.memory in "
        "the settings (PIE_EDGE_LIMITS_MEMORY)"
    )


def _reason(told: str) -> str:
    """The line that says what happened, of a message that is mostly Wasm frames."""
    _, _, cause = told.partition("Caused by:")
    lines = (cause or told).strip().splitlines()
    return lines[0].strip().removeprefix("wasm trap:").strip() if lines else "no reason given"
