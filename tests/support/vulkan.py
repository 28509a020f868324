"""Making a Vulkan device fail, and asking the validation layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pie_edge.backends.vulkan import timeline

DEVICE_LOST = -4


OUT_OF_MEMORY = -2


class LosingLibrary:
    """The loader, whose queue is gone: submits and waits fail as after a GPU's hang. Out of memory, only submits do."""

    def __init__(self, real: Any, status: int) -> None:
        self._real = real
        self._status = status

    def __getattr__(self, name: str) -> Any:
        looks = ("vkGetSemaphoreCounterValue", "vkWaitSemaphores") if self._status == DEVICE_LOST else ()
        if name in ("vkQueueSubmit", *looks):
            return lambda *arguments: self._status
        return getattr(self._real, name)


@contextmanager
def lose_device(monkeypatch: pytest.MonkeyPatch, status: int = DEVICE_LOST) -> Iterator[None]:
    """Within it the first device that is used is lost; the one that is opened instead works."""
    real, lost = timeline.lib, LosingLibrary(timeline.lib, status)
    first = timeline.Timeline.__init__

    def opened_again(self: timeline.Timeline, gpu: Any) -> None:
        monkeypatch.setattr(timeline, "lib", real)
        first(self, gpu)

    monkeypatch.setattr(timeline, "lib", lost)
    monkeypatch.setattr(timeline.Timeline, "__init__", opened_again)
    try:
        yield
    finally:
        monkeypatch.setattr(timeline, "lib", real)
        monkeypatch.setattr(timeline.Timeline, "__init__", first)


@contextmanager
def counted_submits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many command buffers each submit within it takes."""
    found: list[int] = []
    real = timeline.lib

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def vkQueueSubmit(self, queue: Any, count: int, submits: Any, fence: Any) -> int:  # noqa: N802
            found.append(int(submits.commandBufferCount))
            return int(real.vkQueueSubmit(queue, count, submits, fence))

    with monkeypatch.context() as patched:
        patched.setattr(timeline, "lib", Counting())
        yield found


LAYER = "VK_LAYER_KHRONOS_validation"


@contextmanager
def validation(folder: Path) -> Iterator[tuple[dict[str, str], Callable[[], str]]]:
    """An environment that loads the Khronos validation layers into a process, and what they said. Skips without them."""
    if not any(LAYER in path.read_text(encoding="utf-8") for path in _layer_manifests()):
        pytest.skip("the Khronos validation layers aren't installed (Debian: vulkan-validationlayers)")
    log, settings = folder / "validation.log", folder / "vk_layer_settings.txt"
    settings.write_text(
        "khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n"
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        f"khronos_validation.log_filename = {log}\n"
        "khronos_validation.report_flags = error,warn,perf\n",
        encoding="utf-8",
    )
    environment = {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_SETTINGS_PATH": str(settings)}

    def messages() -> str:
        # The layers make the file when they are loaded: without it nothing was validated.
        return log.read_text(encoding="utf-8")

    yield environment, messages


def _layer_manifests() -> Iterator[Path]:
    for folder in ("/usr/share", "/usr/local/share", "/etc"):
        yield from Path(folder).glob("vulkan/explicit_layer.d/*.json")
