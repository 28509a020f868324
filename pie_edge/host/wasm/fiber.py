"""Wasm guests as fibers: the part of wasmtime's async C API that wasmtime-py 50.0.1 has no Python for.

A guest runs on a stack of its own. ``Fiber.poll`` lets it run until it is done, until its epoch deadline passes, or until a
*blocking* host function has no answer yet; in the last two cases its stack is kept and the next ``poll`` goes on there.
Everything happens on the polling thread, which holds no Python lock while guest code runs. Deleting the future of a
suspended call unwinds its stack, which is how a guest is cancelled at any point.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

from wasmtime import Store, WasmtimeError
from wasmtime import _ffi as ffi
from wasmtime.component import Component
from wasmtime.component._types import FuncType

from pie_edge.host.wasm.abi import SIZE, address_of, delete_value, poll_future, read
from pie_edge.host.wasm.imports import Imports, Pending
from pie_edge.host.wasm.lift import reader
from pie_edge.host.wasm.lower import writer


class HostFunctionError(Exception):
    """A host function failed in a way that is no ``PieError``: ours, not the guest's."""


class Fiber:
    """One call into a guest: an instantiation or an export."""

    def __init__(self, imports: Imports, guest: Any, *owners: Any) -> None:
        self.guest = guest
        self._owners = owners  # what the call uses must outlive it
        self.blocked_on: Pending | None = None
        self.fault: BaseException | None = None
        self._imports = imports
        self._future: Any = None
        self._error = ctypes.POINTER(ffi.wasmtime_error_t)()

    def poll(self) -> bool:
        """Lets the guest run; True when the call is over. Raises WasmtimeError for a trap, HostFunctionError for our fault."""
        imports = self._imports
        previous, imports.current = imports.current, self
        try:
            if not poll_future(self._future):
                return False
        finally:
            imports.current = previous
        self.close()
        if self._error:
            trap = WasmtimeError._from_ptr(self._error)
            if self.fault is not None:
                raise HostFunctionError(str(trap)) from self.fault
            raise trap
        return True

    def close(self) -> None:
        """Drops the call; a suspended guest is unwound and never runs again."""
        future, self._future = self._future, None
        if future is not None:
            ffi.wasmtime_call_future_delete(future)


class Instantiation(Fiber):
    def __init__(self, imports: Imports, guest: Any, store: Store, component: Component) -> None:
        super().__init__(imports, guest, store, component)
        self.instance = ffi.wasmtime_component_instance_t()
        self._future = ffi.wasmtime_component_linker_instantiate_async(
            imports.linker.ptr(), store._context(), component.ptr(), byref(self.instance), byref(self._error)
        )


class ExportCall(Fiber):
    """A call of the export ``name``; ``result`` is there when ``poll`` said True."""

    def __init__(
        self, imports: Imports, guest: Any, store: Store, instance: Any, name: str, arguments: tuple[Any, ...]
    ) -> None:
        super().__init__(imports, guest, store)
        context = store._context()
        self._context = address_of(context)
        self._function = _export(context, instance, name)
        described = FuncType._from_ptr(ffi.wasmtime_component_func_type(byref(self._function), context))
        writers = [writer(parameter, imports.resources) for _, parameter in described.params]
        # Results and arguments are read and written by the guest's stack: they live as long as the call.
        block = b"".join(write(self._context, value) for write, value in zip(writers, arguments, strict=True))
        self._count = len(arguments)
        self._arguments = (ffi.wasmtime_component_val_t * self._count).from_buffer_copy(block)
        self._reader = reader(described.result)
        self._result = ffi.wasmtime_component_val_t()
        self._future = ffi.wasmtime_component_func_call_async(
            byref(self._function),
            context,
            self._arguments,
            self._count,
            byref(self._result),
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
        for index in range(self._count):
            delete_value(base + SIZE * index)

    def free(self) -> None:
        """Frees the result; it was read before."""
        delete_value(ctypes.addressof(self._result))


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
