"""The threads that run kernels: one leads and is the caller's, the others stay inside wasm until the end."""

from __future__ import annotations

import threading
from typing import Any

from wasmtime import Engine, Instance, Module, Store, Trap, Val, WasmtimeError

from pie_edge.backends.cpu.memory import LinearMemory, Region
from pie_edge.errors import DeviceLost

STACK_BYTES = 1 << 16


class _Hand:
    """An instance of the kernels with a stack of its own in the shared memory."""

    def __init__(self, engine: Engine, module: Module, memory: LinearMemory) -> None:
        self.store = Store(engine)
        instance = Instance(self.store, module, [memory.shared])
        self._exports = instance.exports(self.store)

    def use_stack(self, stack: Region) -> None:
        pointer: Any = self._exports["__stack_pointer"]
        pointer.set_value(self.store, Val.i32(stack.offset + stack.nbytes))

    def heap(self) -> int:
        base: Any = self._exports["__heap_base"]
        return int(base.value(self.store))

    def call(self, name: str, *arguments: int) -> Any:
        function: Any = self._exports[name]
        return function(self.store, *arguments)


class Crew:
    """``run`` is for one thread at a time. After a trap everything raises DeviceLost."""

    def __init__(self, engine: Engine, module: Module, memory: LinearMemory, threads: int, limit: int) -> None:
        self.threads = threads
        self._hands = [_Hand(engine, module, memory) for _ in range(threads)]
        memory.open(self._hands[0].heap(), limit)
        # Used by whoever has to tell the others something while the leader may be in a kernel.
        self._messenger = _Hand(engine, module, memory)
        self._messenger_lock = threading.Lock()
        for hand in (*self._hands, self._messenger):
            hand.use_stack(memory.allocate(STACK_BYTES, "a kernel thread's stack"))
        self._trouble: BaseException | None = None
        self._tell("set_threads", threads)
        self._helpers = [
            threading.Thread(target=self._help, args=(index,), name=f"pie-edge-cpu-{index}", daemon=True)
            for index in range(1, threads)
        ]
        for helper in self._helpers:
            helper.start()

    def run(self, program: int) -> None:
        """Run the instructions at address ``program`` to their end. Raises DeviceLost."""
        if self._trouble is None:
            try:
                if self._hands[0].call("run", program):
                    return
            except (Trap, WasmtimeError) as error:
                self._fail(error)
        raise DeviceLost(f"a kernel of the cpu backend trapped: {self._trouble}") from self._trouble

    def close(self) -> None:
        self._tell("stop")
        for helper in self._helpers:
            helper.join()

    def _help(self, index: int) -> None:
        try:
            self._hands[index].call("help", index)
        except (Trap, WasmtimeError) as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._trouble = error
        self._tell("fail")

    def _tell(self, message: str, *arguments: int) -> None:
        with self._messenger_lock:
            self._messenger.call(message, *arguments)
