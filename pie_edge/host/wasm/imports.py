"""Host functions of a linker, for guests that are fibers.

Two traps of the C API shape this module: an exception that leaves a callback is lost or shows up elsewhere, so none does; a
continuation that raises is polled for ever, so it reports instead.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from wasmtime import WasmtimeError
from wasmtime import _ffi as ffi
from wasmtime.component import Linker, LinkerInstance, ResourceType
from wasmtime.component._types import FuncType, ResultType

from pie_edge.errors import PieError
from pie_edge.host.wasm.abi import SIZE, Reader, Writer, address_of, read
from pie_edge.host.wasm.lift import reader
from pie_edge.host.wasm.lower import writer

if TYPE_CHECKING:
    from pie_edge.host.wasm.fiber import Fiber

HostFunction = Callable[..., Any]
"""``(guest, *arguments) → value``; a ``PieError`` becomes the error of a WIT ``result``."""


class Pending(Protocol):
    """What a blocking host function gives back when it can't answer at once; an ``asyncio.Future`` will do."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Signature:
    parameters: tuple[Reader, ...]
    result: Writer | None
    fallible: bool  # the result is a WIT result: errors are values

    def answer(self, context: int, value: Any, results: Any) -> None:
        if self.result is not None:
            ctypes.memmove(results, self.result(context, value), SIZE)


@dataclass(slots=True)
class _Binding:
    name: str
    function: HostFunction
    signature: _Signature | None = None


@dataclass(slots=True)
class _Wait:
    """A blocking call whose answer is outstanding."""

    binding: _Binding
    fiber: Fiber
    pending: Pending
    context: int
    results: int
    error: Any


class Imports:
    """Host functions of one linker. Guests are told apart by the fiber that is being polled."""

    def __init__(self, linker: Linker, resources: Mapping[int, ResourceType]) -> None:
        self.linker = linker
        self.current: Fiber | None = None
        self.resources = resources
        self._bindings: dict[int, _Binding] = {}
        self._waits: dict[int, _Wait] = {}
        self._numbers = itertools.count(1)
        # The C side keeps these addresses: they live as long as the linker does.
        self._call = ffi.wasmtime_component_func_callback_t(self._on_call)
        self._blocking_call = ffi.wasmtime_component_func_async_callback_t(self._on_blocking_call)
        self._complete = ffi.wasmtime_func_async_continuation_callback_t(lambda env: True)
        self._continue = ffi.wasmtime_func_async_continuation_callback_t(self._on_continue)
        self._finish = _FINALIZER(self._on_finish)

    def add(self, instance: LinkerInstance, name: str, function: HostFunction, blocking: bool = False) -> None:
        """Defines ``name``. A blocking function may give a ``Pending`` back, and then the guest sleeps."""
        number = next(self._numbers)
        self._bindings[number] = _Binding(name, function)
        encoded = name.encode()
        define = ffi.wasmtime_component_linker_instance_add_func
        callback = self._call
        if blocking:
            define, callback = ffi.wasmtime_component_linker_instance_add_func_async, self._blocking_call
        error = define(
            instance.ptr(), ctypes.create_string_buffer(encoded), len(encoded), callback, number, _NO_FINALIZER
        )
        if error:
            raise WasmtimeError._from_ptr(error)

    def add_resource(self, instance: LinkerInstance, name: str, number: int, drop: HostFunction | None = None) -> None:
        """Defines the resource ``name``; ``drop(guest, representation)`` is called when a guest lets go of one."""

        def dropped(_store: Any, representation: int) -> None:
            if drop is None or self.current is None:
                return
            try:
                drop(self.current.guest, representation)
            except Exception as error:
                self.current.fault = error

        instance.add_resource(name, self.resources[number], dropped)

    def _signature(self, binding: _Binding, kind: Any) -> _Signature:
        if binding.signature is None:
            described = FuncType._from_ptr(kind, owner=self)
            result = described.result
            binding.signature = _Signature(
                tuple(reader(parameter) for _, parameter in described.params),
                writer(result, self.resources) if result is not None else None,
                isinstance(result, ResultType),
            )
        return binding.signature

    def _invoke(self, binding: _Binding, signature: _Signature, context: int, arguments: Any) -> Any:
        address = address_of(arguments)
        values = [read(lift, context, address + SIZE * i) for i, lift in enumerate(signature.parameters)]
        assert self.current is not None, "a guest ran outside of Fiber.poll"
        return _outcome(signature, partial(binding.function, self.current.guest, *values))

    def _on_call(self, number: int, context: Any, kind: Any, arguments: Any, _n: int, results: Any, _m: int) -> int:
        binding = self._bindings[number]
        try:
            signature = self._signature(binding, kind)
            store = address_of(context)
            value = self._invoke(binding, signature, store, arguments)
            signature.answer(store, value, results)
            return 0
        except BaseException as error:
            return address_of(self._fault(binding, error))

    def _on_blocking_call(
        self,
        number: int,
        context: Any,
        kind: Any,
        arguments: Any,
        _n: int,
        results: Any,
        _m: int,
        error: Any,
        then: Any,
    ) -> None:
        binding = self._bindings[number]
        continuation = then.contents
        continuation.callback = self._complete
        try:
            signature = self._signature(binding, kind)
            store = address_of(context)
            value = self._invoke(binding, signature, store, arguments)
            assert self.current is not None
            if not hasattr(value, "done"):
                signature.answer(store, value, results)
                return
            wait = _Wait(binding, self.current, value, store, address_of(results), error)
            key = next(self._numbers)
            self._waits[key] = wait
            self.current.blocked_on = value
            continuation.callback, continuation.env, continuation.finalizer = self._continue, key, self._finish
        except BaseException as fault:
            error[0] = self._fault(binding, fault)

    def _on_continue(self, key: int) -> bool:
        wait = self._waits[key]
        if not wait.pending.done():
            return False
        wait.fiber.blocked_on = None
        signature = wait.binding.signature
        assert signature is not None
        try:
            signature.answer(wait.context, _outcome(signature, wait.pending.result), wait.results)
        except BaseException as fault:
            wait.error[0] = self._fault(wait.binding, fault)
        return True

    def _on_finish(self, key: int) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None and not wait.pending.done():
            wait.pending.cancel()

    def _fault(self, binding: _Binding, error: BaseException) -> Any:
        if self.current is not None:
            self.current.fault = error
        return WasmtimeError(f"{binding.name}: {type(error).__name__}: {error}")._consume()


def _outcome(signature: _Signature, get: Callable[[], Any]) -> Any:
    """What a host function gives: a value, or the ``PieError`` that its WIT result has a place for."""
    try:
        return get()
    except PieError as error:
        if not signature.fallible:
            raise
        return error


_FINALIZER = ctypes.CFUNCTYPE(None, c_void_p)
_NO_FINALIZER = _FINALIZER(0)
