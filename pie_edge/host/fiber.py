"""Wasm guests as fibers: the part of wasmtime's async C API that wasmtime-py 50.0.1 has no Python for.

A guest runs on a stack of its own. ``Fiber.poll`` lets it run until it is done, until its epoch deadline passes, or until a
*blocking* host function has no answer yet; in the last two cases its stack is kept and the next ``poll`` goes on there.
Everything happens on the polling thread, which holds no Python lock while guest code runs.

Three traps of the C API shape this module: an exception that leaves a callback is lost or shows up elsewhere, so none does; a
continuation that raises is polled for ever, so it reports instead; deleting the future of a suspended call unwinds its
stack, which is how a guest is cancelled at any point.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any, Protocol

from wasmtime import Config, Engine, Store, WasmtimeError
from wasmtime import _ffi as ffi
from wasmtime.component import Component, Linker, LinkerInstance, ResourceType
from wasmtime.component._types import FuncType

from pie_edge.errors import PieError
from pie_edge.host.values import SIZE, Codec, Reader, Writer, delete, read

HostFunction = Callable[..., Any]
"""``(guest, *arguments) → value``; a ``PieError`` becomes the error of a WIT ``result``."""


class Pending(Protocol):
    """What a blocking host function gives back when it can't answer at once; an ``asyncio.Future`` will do."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any: ...


class HostFault(Exception):
    """A host function failed in a way that is no ``PieError``: ours, not the guest's."""


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

    def __init__(self, linker: Linker, resources: dict[int, ResourceType]) -> None:
        self.linker = linker
        self.current: Fiber | None = None
        self.codec = Codec(resources)
        self._resources = resources
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
            except Exception as error:  # noqa: BLE001 — nothing may leave a callback
                self.current.fault = error

        instance.add_resource(name, self._resources[number], dropped)

    def _signature(self, binding: _Binding, kind: Any) -> _Signature:
        if binding.signature is None:
            described = FuncType._from_ptr(kind, owner=self)
            result = described.result
            binding.signature = _Signature(
                tuple(self.codec.reader(parameter) for _, parameter in described.params),
                self.codec.writer(result) if result is not None else None,
                type(result).__name__ == "ResultType",
            )
        return binding.signature

    def _invoke(self, binding: _Binding, signature: _Signature, context: int, arguments: Any) -> Any:
        address = ctypes.cast(arguments, c_void_p).value or 0
        values = [read(reader, context, address + SIZE * i) for i, reader in enumerate(signature.parameters)]
        assert self.current is not None, "a guest ran outside of Fiber.poll"
        try:
            return binding.function(self.current.guest, *values)
        except PieError as error:
            if not signature.fallible:
                raise
            return error

    def _on_call(self, number: int, context: Any, kind: Any, arguments: Any, _n: int, results: Any, _m: int) -> int:
        binding = self._bindings[number]
        try:
            signature = self._signature(binding, kind)
            store = ctypes.cast(context, c_void_p).value or 0
            value = self._invoke(binding, signature, store, arguments)
            signature.answer(store, value, results)
            return 0
        except BaseException as error:  # noqa: BLE001 — nothing may leave a callback
            return ctypes.cast(self._fault(binding, error), c_void_p).value or 0

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
            store = ctypes.cast(context, c_void_p).value or 0
            value = self._invoke(binding, signature, store, arguments)
            assert self.current is not None
            if not hasattr(value, "done"):
                signature.answer(store, value, results)
                return
            wait = _Wait(binding, self.current, value, store, ctypes.cast(results, c_void_p).value or 0, error)
            key = next(self._numbers)
            self._waits[key] = wait
            self.current.blocked_on = value
            continuation.callback, continuation.env, continuation.finalizer = self._continue, key, self._finish
        except BaseException as fault:  # noqa: BLE001
            error[0] = self._fault(binding, fault)

    def _on_continue(self, key: int) -> bool:
        wait = self._waits[key]
        if not wait.pending.done():
            return False
        wait.fiber.blocked_on = None
        signature = wait.binding.signature
        assert signature is not None
        try:
            signature.answer(wait.context, wait.pending.result(), wait.results)
        except BaseException as fault:  # noqa: BLE001
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


class Fiber:
    """One call into a guest: an instantiation or an export."""

    def __init__(self, imports: Imports, guest: Any) -> None:
        self.guest = guest
        self.blocked_on: Pending | None = None
        self.fault: BaseException | None = None
        self._imports = imports
        self._future: Any = None
        self._error = ctypes.POINTER(ffi.wasmtime_error_t)()

    def poll(self) -> bool:
        """Lets the guest run; True when the call is over. Raises ``WasmtimeError`` if it trapped, ``HostFault`` if we did."""
        imports = self._imports
        previous, imports.current = imports.current, self
        try:
            if not _poll(self._future):
                return False
        finally:
            imports.current = previous
        self.close()
        if self._error:
            trap = WasmtimeError._from_ptr(self._error)
            if self.fault is not None:
                raise HostFault(str(trap)) from self.fault
            raise trap
        return True

    def close(self) -> None:
        """Drops the call; a suspended guest is unwound and never runs again."""
        future, self._future = self._future, None
        if future is not None:
            ffi.wasmtime_call_future_delete(future)


class Instantiation(Fiber):
    def __init__(self, imports: Imports, guest: Any, store: Store, component: Component) -> None:
        super().__init__(imports, guest)
        self.instance = ffi.wasmtime_component_instance_t()
        self._future = ffi.wasmtime_component_linker_instantiate_async(
            imports.linker.ptr(), store._context(), component.ptr(), byref(self.instance), byref(self._error)
        )


class ExportCall(Fiber):
    """A call of the export ``name``; ``result`` is there when ``poll`` said True."""

    def __init__(
        self, imports: Imports, guest: Any, store: Store, instance: Any, name: str, arguments: tuple[Any, ...]
    ) -> None:
        super().__init__(imports, guest)
        context = store._context()
        self._context = ctypes.cast(context, c_void_p).value or 0
        self._function = _export(context, instance, name)
        described = FuncType._from_ptr(ffi.wasmtime_component_func_type(byref(self._function), context))
        codec = imports.codec
        writers = [codec.writer(parameter) for _, parameter in described.params]
        # Results and arguments are read and written by the guest's stack: they live as long as the call.
        block = b"".join(writer(self._context, value) for writer, value in zip(writers, arguments, strict=True))
        self._arguments = ctypes.create_string_buffer(block, max(len(block), 1))
        self._reader = codec.reader(described.result)
        self._result = ctypes.create_string_buffer(SIZE)
        self._count = len(arguments)
        values = ctypes.POINTER(ffi.wasmtime_component_val_t)
        self._future = ffi.wasmtime_component_func_call_async(
            byref(self._function),
            context,
            ctypes.cast(self._arguments, values),
            self._count,
            ctypes.cast(self._result, values),
            1,
            byref(self._error),
        )

    @property
    def result(self) -> Any:
        return read(self._reader, self._context, ctypes.addressof(self._result))

    def close(self) -> None:
        if self._future is None:
            return
        super().close()
        base = ctypes.addressof(self._arguments)
        for i in range(self._count):
            ffi.dll.wasmtime_component_val_delete(
                ctypes.cast(base + SIZE * i, ctypes.POINTER(ffi.wasmtime_component_val_t))
            )

    def free(self) -> None:
        """Frees the result; it was read before."""
        delete(self._result)


def yield_on_epoch(store: Store) -> None:
    """At every epoch tick the guest gives way instead of trapping."""
    store.set_epoch_deadline(1)
    # The C function returns nothing; what ctypes makes of it is garbage and must not be looked at.
    ffi.wasmtime_context_epoch_deadline_async_yield_and_update(store._context(), 1)


def _export(context: Any, instance: Any, name: str) -> Any:
    encoded = name.encode()
    index = ffi.wasmtime_component_instance_get_export_index(
        byref(instance), context, None, ctypes.create_string_buffer(encoded), len(encoded)
    )
    function = ffi.wasmtime_component_func_t()
    found = bool(index) and ffi.wasmtime_component_instance_get_func(byref(instance), context, index, byref(function))
    if index:
        ffi.wasmtime_component_export_index_delete(index)
    if not found:
        raise WasmtimeError(f"the component has no export {name!r}")
    return function


_FINALIZER = ctypes.CFUNCTYPE(None, c_void_p)
_NO_FINALIZER = _FINALIZER(0)
_poll = ffi.dll.wasmtime_call_future_poll

__all__ = [
    "Config",
    "Engine",
    "ExportCall",
    "Fiber",
    "HostFault",
    "Imports",
    "Instantiation",
    "Pending",
    "yield_on_epoch",
]
