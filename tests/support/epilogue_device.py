"""Epilogues on any device in tests, through its backend: a Program and its arrays, to its outputs."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from pie_edge.program.encodings import DType
from pie_edge.program.ops import Program, Role
from tests.backend.device import put

NUMPY = {DType.F32: np.float32, DType.I32: np.int32, DType.U32: np.uint32, DType.U8: np.bool_}
_POISON = b"\xee\xff\xc0\xff"
"""A pattern that no answer holds: what nothing has written must never be read."""


T = TypeVar("T")


class Session:
    """A backend and a loop of its own, for tests that aren't coroutines."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self._runner = asyncio.Runner()

    @property
    def _compiler(self) -> Any:
        """Of arenas. Metal's backend has none: every value is an array of its own, poisoned by the emulator."""
        return getattr(self.backend._live, "compiler", None)

    def run(self, program: Program, arrays: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """The outputs of the true passes, as ``run_nodes`` gives them; ``options`` are the Epilogue's."""
        return self.run_and_keep(program, arrays, **options)[0]

    def run_and_keep(self, program: Program, arrays: Mapping[str, Any], **options: Any) -> tuple[dict[str, Any], Any]:
        """The outputs, and the words of the state that comes last: where there are two, the engine's tokens."""
        maker, name = (self._compiler, "Epilogue") if self._compiler else (self.backend, "DeviceEpilogue")
        module = importlib.import_module(type(maker).__module__)
        with mock.patch.object(module, name, partial(getattr(module, name), **options)):
            return self._runner.run(self._run(program, arrays))

    async def _run(self, program: Program, arrays: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        backend = self.backend
        states = {v.name: await put(backend, np.ascontiguousarray(arrays[v.name])) for v in program.by_role(Role.STATE)}
        executable = await backend.compile(program, states)
        self._poison()
        inputs = {v.name: np.ascontiguousarray(arrays[v.name]).tobytes() for v in program.by_role(Role.INPUT)}
        outputs, found = await backend.read(backend.run(executable, inputs)), {}
        for value in program.by_role(Role.OUTPUT):
            raw = np.frombuffer(outputs[value.name], np.uint8)
            found[value.name] = raw.view(NUMPY[value.dtype]).reshape(value.shape)[: int(arrays["counts"][0])]
        last = list(states.values())[-1]
        (kept,) = (await backend.read(backend.download([(last, 0, last.nbytes)]))).values()
        for state in states.values():
            backend.free(state)
        return found, np.frombuffer(kept, np.uint32)

    def wait_for(self, test: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """What a coroutine of the backend comes to."""
        return self._runner.run(test(self.backend))

    def _poison(self) -> None:
        live = self.backend._live
        for buffer in (one for many in (self._compiler._arenas.values() if self._compiler else ()) for one in many):
            live.upload(buffer.region(), memoryview(_POISON * (buffer.nbytes // 4)))

    def close(self) -> None:
        self._runner.run(self.backend.close())
        self.end()

    def end(self) -> None:
        """The backend stays open."""
        self._runner.close()
