"""wasmtime, set up for guests: one engine, one linker with everything a guest can reach, a store for each."""

from __future__ import annotations

from wasmtime import Config, Engine, Store
from wasmtime import _ffi as ffi
from wasmtime.component import Component, Linker

from pie_edge.host import services, wasi
from pie_edge.host.limits import Limits
from pie_edge.host.wasm.fiber import yield_on_epoch
from pie_edge.host.wasm.imports import Imports

STACK = 8 * 2**20
"""Bytes of a guest's native stack; only what is touched takes memory. CPython recurses deeply before it says so."""


def make_engine() -> Engine:
    config = Config()
    config.wasm_component_model = True
    config.epoch_interruption = True
    # Pages of a guest's memory stay those of the compiled file until they are written.
    config.memory_init_cow = True
    config.max_wasm_stack = STACK
    ffi.wasmtime_config_async_stack_size_set(config.ptr(), STACK + 2**20)
    return Engine(config)


CONFIGURATION = f"wasmtime 50.0.1 component-model epochs cow stack={STACK}"
"""What compiled code depends on, for the name of its file. (The version is pinned; asking for it takes 10 ms.)"""


class Sandbox:
    """Guests of one component."""

    def __init__(self, engine: Engine, component: Component) -> None:
        self.engine = engine
        self.component = component
        linker = Linker(engine)
        self.imports = Imports(linker, {**services.RESOURCES, **wasi.RESOURCES})
        wasi.define(linker, self.imports)
        services.define(linker, self.imports)
        linker.define_unknown_imports_as_traps(component)

    def new_store(self, limits: Limits) -> Store:
        store = Store(self.engine)
        store.set_limits(memory_size=limits.memory)
        yield_on_epoch(store)
        return store
