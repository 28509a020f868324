"""The Metal backend with its kernels on the emulator: MLX makes their texts, checks and computes the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.metal.backend import Live, MetalBackend, Options
from pie_edge.backends.metal.device import Mode
from pie_edge.backends.metal.launch import Launch, Launcher
from pie_edge.backends.metal.tuning import Tuning
from tests.simt import build, msl

Edit = Callable[[str], str]
BACKWARD, SHUFFLED = 1, 2
"""Orders of threads, beside the usual one."""
_BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def as_it_is(text: str) -> str:
    return text


def changed(old: str, new: str) -> Edit:
    """Kernels whose text has it."""
    return lambda text: text.replace(old, new)


def without_barrier(number: int) -> Edit:
    """Of those that order threadgroup memory alone, in the order of the text."""

    def edit(text: str) -> str:
        pieces = text.split(_BARRIER)
        return _BARRIER.join(pieces[: number + 1]) + ";" + _BARRIER.join(pieces[number + 1 :])

    return edit


class Emulator:
    """A launcher: what MLX would give to Metal is what runs, and it is what this project's text and MLX's rules say."""

    def __init__(self, edit: Edit = as_it_is, flags: Sequence[str] = ("-O1",), order: int = 0, seed: int = 1) -> None:
        self._edit, self._flags, self._schedule = edit, tuple(flags), (order, seed)
        self.texts: dict[Any, str] = {}
        """Captured, by what they depend on."""

    def __call__(self, launch: Launch) -> Sequence[mx.array]:
        mx.eval(*launch.inputs)
        library = _library(self._edit(self._text(launch)), self._flags)
        library.limit(msl.SHARED)
        library.schedule(*self._schedule)
        given = [_words(value) for value in msl.arguments(launch)]
        with ExitStack() as held:
            rooms = [held.enter_context(library.guarded(max(array.nbytes, 1), array.itemsize)) for array in given]
            for room, array in zip(rooms, given, strict=True):
                room[: array.nbytes] = array.reshape(-1).view(np.uint8)
            sizes = [(int(np.prod(shape)) * dtype.size, dtype.size) for shape, dtype in launch.outputs]
            made = [held.enter_context(library.guarded(max(nbytes, 1), size)) for nbytes, size in sizes]
            library.launch("metal", launch.grid, launch.threads, *rooms, *made)
            return [
                mx.array(room[:nbytes].copy()).view(dtype).reshape(shape)
                for room, (nbytes, _), (shape, dtype) in zip(made, sizes, launch.outputs, strict=True)
            ]

    def _text(self, launch: Launch) -> str:
        inputs = tuple((array.shape, array.dtype) for array in launch.inputs)
        key = (launch.kernel, inputs, launch.template, tuple(dtype for _, dtype in launch.outputs))
        if key not in self.texts:
            text = msl.captured(launch)
            assert text == msl.expected(launch, msl.name_of(text))
            self.texts[key] = text
        return self.texts[key]


@cache
def _library(text: str, flags: tuple[str, ...]) -> build.Library:
    return build.Library(build.library(msl.for_emulator(text), (), flags))


def _words(value: mx.array | tuple[int, ...]) -> NDArray[Any]:
    if isinstance(value, tuple):
        return np.array(value, np.int32)
    return np.array(value.view(mx.uint16) if value.dtype == mx.bfloat16 else value, order="C")


emulator: Launcher = Emulator()


def opened(**options: Any) -> MetalBackend:
    """All that there are kernels of ours for is by them."""
    chosen = Options(**{"mode": Mode.KERNELS, "launcher": emulator, "tuning": Tuning.ours(), **options})
    return MetalBackend(chosen, Live(chosen))
