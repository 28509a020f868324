"""Which backend is taken, and what is said of the others. Drivers are played; the last tests look at this machine."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pie_edge import backend_choice, remedies
from pie_edge.backend import Finding
from pie_edge.backend_choice import BACKENDS, Choice, PassedOver, choose
from pie_edge.backends.cuda.probe import probe as probe_cuda
from pie_edge.backends.metal.probe import probe as probe_metal
from pie_edge.backends.shared.vulkan_loader import API_VERSION_1_1, API_VERSION_1_2, card_memory
from pie_edge.backends.vulkan.probe import (
    _Device,
    _finding,
    no_driver,
    no_use,
    unique,
)
from pie_edge.backends.vulkan.probe import probe as probe_vulkan
from pie_edge.backends.wgpu.probe import _unseen
from pie_edge.backends.wgpu.probe import probe as probe_wgpu
from pie_edge.errors import BackendUnavailable

CPU = Finding(("a processor",))
NOTHING = Finding((), "no driver", "install one")
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Plays a machine: what each probe finds."""

    def play(**findings: Finding) -> None:
        monkeypatch.setattr(backend_choice, "probe", lambda name: {"cpu": CPU, **findings}.get(name, NOTHING))

    return play


def test_auto_takes_the_first_that_works_and_says_why_the_better_ones_were_left(machine: Machine) -> None:
    machine(vulkan=Finding(("Arc A380",)))
    assert choose() == Choice("vulkan", "Arc A380", (PassedOver("cuda", "no driver"), PassedOver("metal", "no driver")))


def test_auto_passes_over_software_devices_and_takes_the_cpu(machine: Machine) -> None:
    machine(vulkan=Finding(("llvmpipe",), software=True))
    chosen = choose()
    assert chosen.backend == "cpu"
    assert PassedOver("vulkan", "only a software device") in chosen.passed_over
    assert str(chosen) == "cpu, a processor; passed over cuda, metal, wgpu: no driver; vulkan: only a software device"


def test_a_software_device_is_used_when_it_is_named(machine: Machine) -> None:
    machine(vulkan=Finding(("llvmpipe",), software=True))
    chosen = choose("vulkan")
    assert chosen == Choice("vulkan", "llvmpipe", software=True)
    assert "llvmpipe (a software device" in str(chosen)


def test_a_software_device_beside_a_real_one_is_used_only_when_it_is_asked_for(machine: Machine) -> None:
    machine(vulkan=Finding(("Arc",), spare=("llvmpipe",)))
    assert choose("vulkan") == Choice("vulkan", "Arc")
    for wanted in ("llvmpipe", "1"):
        assert choose("vulkan", wanted) == Choice("vulkan", "llvmpipe", software=True)
    assert choose("auto", "llvm").software
    with pytest.raises(BackendUnavailable, match="it has 0: Arc, 1: llvmpipe"):
        choose("vulkan", "Iris")


def test_auto_takes_the_only_device_by_its_name_though_it_is_software(machine: Machine) -> None:
    machine(vulkan=Finding(("llvmpipe",), software=True))
    assert choose("auto", "llvmpipe") == Choice(
        "vulkan", "llvmpipe", (PassedOver("cuda", "no driver"), PassedOver("metal", "no driver")), software=True
    )


def test_several_devices_are_taken_in_the_order_they_are_named_and_the_backend_may_come_with_them(
    machine: Machine,
) -> None:
    machine(cuda=Finding(("L4", "L4 (2)", "H200")), vulkan=Finding(("llvmpipe (LLVM 15, 256 bits)", "Arc")))
    for backend, device in (("cuda", "2,0"), ("auto", "cuda:2,0"), ("cuda", "cuda:H200, L4"), ("auto", "2,0")):
        chosen = choose(backend, device)
        assert (chosen.backend, chosen.devices) == ("cuda", ("H200", "L4"))
        assert str(chosen) == "cuda, H200 and L4"
    # A comma may belong to a name.
    assert choose("vulkan", "15, 256 bits").devices == ("llvmpipe (LLVM 15, 256 bits)",)
    assert choose("auto", "vulkan:Arc").devices == ("Arc",)
    refused = {
        "0,0": "names L4 twice",
        "0,3": r"no device '3'; it has 0: L4, 1: L4 \(2\), 2: H200",
        "1,": "a comma with nothing beside it",
    }
    for device, says in refused.items():
        with pytest.raises(BackendUnavailable, match=says):
            choose("cuda", device)
    with pytest.raises(BackendUnavailable, match="device 'cuda:0' is of cuda, and backend vulkan was asked for"):
        choose("vulkan", "cuda:0")


DEVICES = [("Old", API_VERSION_1_1, False), ("Arc", API_VERSION_1_2, False), ("llvmpipe", API_VERSION_1_2, True)]
PAIRS = ("llvmpipe (64 bits)", API_VERSION_1_2, True, 2)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (DEVICES, Finding(("Arc",), spare=("llvmpipe",))),
        (DEVICES[2:], Finding(("llvmpipe",), software=True)),
        (DEVICES[:1], Finding((), "Old has Vulkan 1.1, 1.2 is needed", "update the GPU's driver")),
        ([PAIRS], Finding((), "llvmpipe (64 bits) has subgroups of 2, 4 are needed", "update the GPU's driver")),
        ([PAIRS, DEVICES[1]], Finding(("Arc",))),
    ],
)
def test_vulkan_devices_are_told_apart_by_what_they_can_do(seen: list[tuple[Any, ...]], found: Finding) -> None:
    assert _finding([_Device(*device) for device in seen], installed=True) == found


def test_a_variable_that_hides_the_drivers_or_narrows_their_vectors_is_what_the_remedy_names() -> None:
    assert no_driver({}).startswith("install the Vulkan loader")
    told = no_driver({"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": ""})
    assert told == "unset VK_DRIVER_FILES (/nowhere.json here), or name a driver that is installed there"
    narrow = {"LP_NATIVE_VECTOR_WIDTH": "64"}
    assert no_use(True, narrow) == "unset LP_NATIVE_VECTOR_WIDTH (64 here), or set it to 128 or more"
    assert no_use(False, narrow) == no_use(True, {}) == "update the GPU's driver"


def test_equal_cards_get_names_of_their_own() -> None:
    assert unique(["Arc", "RTX", "Arc", "Arc"]) == ["Arc", "RTX", "Arc (2)", "Arc (3)"]


@pytest.mark.parametrize(("wanted", "taken"), [("", "RTX A"), ("1", "RTX B"), ("b", "RTX B"), ("rtx", "RTX A")])
def test_a_device_is_an_index_or_part_of_its_name(machine: Machine, wanted: str, taken: str) -> None:
    machine(cuda=Finding(("RTX A", "RTX B")))
    assert choose("cuda", wanted).device == taken


@pytest.mark.parametrize("wanted", ["2", "Arc", "-1", "٠"])
def test_a_device_that_is_not_there_is_refused_with_the_list(machine: Machine, wanted: str) -> None:
    machine(cuda=Finding(("RTX A", "RTX B")))
    with pytest.raises(BackendUnavailable, match=f"has no device '{wanted}'; it has 0: RTX A, 1: RTX B"):
        choose("cuda", wanted)


def test_asking_for_a_device_that_is_not_looked_at_tells_why_and_what_helps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(wgpu=Finding(("Arc, Vulkan",), unseen=_unseen({"Vulkan"})))
    with pytest.raises(BackendUnavailable) as refused:
        choose("wgpu", "OpenGL")
    assert str(refused.value) == (
        "backend wgpu has no device 'OpenGL'; it has 0: Arc, Vulkan. OpenGL is looked at only where there is no other API, and "
        f"here is Vulkan; hide its drivers with VK_DRIVER_FILES={os.devnull} to use OpenGL"
    )
    assert "VK_DRIVER_FILES" not in _unseen({"Metal"})
    assert _unseen({"OpenGL"}) == ""


def test_auto_with_a_device_takes_the_backend_that_has_it(machine: Machine) -> None:
    machine(cuda=Finding(("RTX A",)), vulkan=Finding(("Arc", "RTX A")))
    assert choose("auto", "Arc").backend == "vulkan"
    with pytest.raises(BackendUnavailable, match="no backend has a device like 'M4'"):
        choose("auto", "M4")


def test_a_backend_that_there_is_not_is_refused_with_the_list() -> None:
    with pytest.raises(BackendUnavailable, match="no backend 'vulcan'; there are auto, cuda, metal, vulkan, wgpu, cpu"):
        choose("vulcan")


def test_a_named_backend_is_never_replaced_by_another(machine: Machine) -> None:
    machine()
    with pytest.raises(BackendUnavailable, match="cuda was asked for, but no driver; install one"):
        choose("cuda")


def test_a_device_that_is_refused_keeps_its_number_and_is_never_taken(machine: Machine) -> None:
    machine(cuda=Finding(("Old RTX", "RTX B"), refused={"Old RTX": "Old RTX is too old; use another"}))
    for asked in (("auto", ""), ("cuda", ""), ("auto", "1"), ("cuda", "rtx")):
        assert choose(*asked).devices == ("RTX B",)
    for device in ("0", "old"):
        with pytest.raises(
            BackendUnavailable, match="^Old RTX is too old; use another; backend cuda may use 1: RTX B$"
        ):
            choose("cuda", device)
    with pytest.raises(BackendUnavailable, match="no device '2'; it has 1: RTX B$"):
        choose("cuda", "2")


class PlayedCuda:
    """As much of the driver's API as the probe calls."""

    def __init__(
        self, version: int = 13_000, devices: tuple[str, ...] = ("H200",), start: int = 0, capability: int = 90
    ) -> None:
        self.version, self.devices, self.start = version, devices, start
        self.attributes = {75: capability // 10, 76: capability % 10}

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.version
        return 0

    def cuInit(self, _: int) -> int:  # noqa: N802
        return self.start

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, out: Any, ordinal: int) -> int:  # noqa: N802
        out._obj.value = ordinal
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, _: ctypes.c_int) -> int:  # noqa: N802
        out._obj.value = self.attributes.get(attribute, 0)
        return 0

    def cuDeviceGetName(self, name: Any, _: int, handle: ctypes.c_int) -> int:  # noqa: N802
        name.value = self.devices[handle.value].encode()
        return 0


@pytest.mark.skipif(sys.platform == "darwin", reason="there is no CUDA on macOS")
@pytest.mark.parametrize(
    ("driver", "devices", "reason"),
    [
        (PlayedCuda(), ("H200",), ""),
        (PlayedCuda(13_020, ("A", "B")), ("A", "B"), ""),
        (PlayedCuda(12_090), (), "the NVIDIA driver serves CUDA 12.9, and 13.0 is needed"),
        (PlayedCuda(start=100), (), "the NVIDIA driver doesn't start (cuInit returned 100)"),
        (PlayedCuda(devices=()), (), "the NVIDIA driver sees no device"),
        (
            PlayedCuda(devices=("GTX 1080",), capability=61),
            (),
            "GTX 1080 has compute capability 6.1, and backend cuda needs 7.5 or newer",
        ),
    ],
)
def test_the_cuda_probe_wants_driver_r580_and_a_device_that_kernels_are_for(
    driver: PlayedCuda, devices: tuple[str, ...], reason: str
) -> None:
    found = probe_cuda(lambda _: driver)
    assert (found.devices, found.reason) == (devices, reason)


def test_the_cuda_probe_wants_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pie_edge.backends.cuda.probe.has_compiler", lambda: False)
    found = probe_cuda(lambda _: PlayedCuda())
    assert sys.platform == "darwin" or ("NVRTC" in found.reason and found.remedy == remedies.install("cuda"))


def refuse(_: str) -> Any:
    raise OSError


def test_without_a_driver_library_the_remedy_is_to_install_one() -> None:
    assert "driver" in probe_cuda(refuse).remedy or sys.platform == "darwin"
    assert probe_vulkan(refuse).reason == "no Vulkan loader"
    assert "libvulkan1" in probe_vulkan(refuse).remedy


def test_a_missing_package_is_installed_from_the_checkout_where_this_is_one(tmp_path: Path) -> None:
    checkout, elsewhere = tmp_path / "pie edge", tmp_path / "elsewhere"
    own = str(checkout / ".venv")
    pip = Path(".venv", "Scripts" if sys.platform == "win32" else "bin", "pip")
    checkout.mkdir()
    installed = remedies.install("wgpu", root=checkout, prefix=own, folder=checkout)
    assert installed == "pip install 'pie-edge[wgpu]'"
    (checkout / "pyproject.toml").touch()
    assert remedies.install("wgpu", root=checkout, prefix=own, folder=checkout) == f"{pip} install -e '.[wgpu]'"
    told = remedies.install("wgpu", root=checkout, prefix=own, folder=elsewhere)
    assert shlex.split(told) == [str(checkout / pip), "install", "-e", f"{checkout}[wgpu]"]
    told = remedies.install("wgpu", root=checkout, prefix=str(elsewhere), folder=checkout)
    assert shlex.split(told) == [sys.executable, "-m", "pip", "install", "-e", ".[wgpu]"]


def test_the_remedy_for_a_missing_package_is_one_that_works_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _finding([_Device(*DEVICES[1])], installed=False).remedy == remedies.install("vulkan")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert probe_wgpu().remedy == remedies.install("wgpu")


def test_metal_wants_apple_silicon_or_mlx_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_metal("win32").reason == "Metal is macOS's, and MLX runs on macOS and Linux alone"
    assert probe_metal("darwin", "x86_64").reason == "MLX needs Apple silicon"
    assert probe_metal("darwin", "arm64", "13.6.1").reason == "MLX needs macOS 14 or newer"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for system in ("linux", "darwin"):
        found = probe_metal(system, "arm64", "14.0")
        assert (found.reason, found.remedy) == ("MLX is not installed", remedies.install("metal"))


def test_metal_on_linux_is_a_software_device_that_auto_never_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmlx.so").touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    found = probe_metal("linux")
    assert found.software
    assert [name.startswith("MLX on the processor") for name in found.devices] == [True]
    monkeypatch.setattr(backend_choice, "probe", lambda name: {"cpu": CPU, "metal": found}.get(name, NOTHING))
    assert choose().backend == "cpu"
    assert "(a software device" in str(choose("metal"))


@pytest.fixture
def broken_mlx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installed, with a library that lacks something."""
    package = tmp_path / "mlx"
    (package / "lib").mkdir(parents=True)
    (package / "lib" / "libmlx.dylib").touch()
    (package / "__init__.py").touch()
    (package / "core.py").write_text("raise ImportError('played: symbol not found')\n", encoding="utf-8")
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_mlx(name)}
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in filter(_is_mlx, list(sys.modules)):
        del sys.modules[name]
    sys.modules.update(kept)


def _is_mlx(name: str) -> bool:
    return name.partition(".")[0] == "mlx" or (
        name.startswith("pie_edge.backends.metal.") and not name.endswith("probe")
    )


def test_a_broken_mlx_on_a_mac_is_passed_over_with_its_reason(
    broken_mlx: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = probe_metal("darwin", "arm64", "15.0")
    assert found.reason == "MLX is installed, but can't be loaded: ImportError: played: symbol not found"
    assert remedies.install("metal") in found.remedy
    monkeypatch.setattr(backend_choice, "probe", lambda name: {"cpu": CPU, "metal": found}.get(name, NOTHING))
    assert choose().backend == "cpu"
    with pytest.raises(BackendUnavailable, match=r"metal was asked for, but MLX is installed, but .*pip uninstall mlx"):
        choose("metal")


def test_a_broken_mlx_on_linux_is_told_by_doctor_and_when_it_is_opened(broken_mlx: None) -> None:
    if sys.platform != "linux":
        pytest.skip("a probe loads MLX on a Mac")
    assert "played: symbol not found" in backend_choice.describe("metal")[0]
    with pytest.raises(
        BackendUnavailable, match="backend metal can't be loaded: ImportError: played: symbol not found"
    ):
        asyncio.run(backend_choice.open_backend(choose("metal")))


@pytest.mark.parametrize("what", ["no device", "an error"])
def test_a_mac_whose_gpu_mlx_cannot_use_is_passed_over(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def available() -> bool:
        if what == "no device":
            return False
        raise RuntimeError("played: no GPU")

    played = SimpleNamespace(metal=SimpleNamespace(is_available=available))
    monkeypatch.setattr("pie_edge.backends.metal.probe._is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "mlx.core", played)
    found = probe_metal("darwin", "arm64", "15.0")
    assert not found.devices
    assert found.reason in ("MLX finds no Metal device", "MLX can't use its Metal device: played: no GPU")
    assert found.remedy


def test_the_vulkan_probe_names_the_devices_of_the_real_loader() -> None:
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        pytest.skip("no Vulkan loader; scripts/debian-packages installs one as root")
    found = probe_vulkan()
    assert found.devices or found.remedy
    assert found.software == all("llvmpipe" in name.lower() for name in found.devices) or not found.devices


class PlayedVulkan:
    """A loader with an integrated device and a card, as much of it as is called."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def vkCreateInstance(self, *_: Any) -> int:  # noqa: N802
        return self.status

    def vkDestroyInstance(self, *_: Any) -> None: ...  # noqa: N802

    def vkEnumeratePhysicalDevices(self, _: Any, count: Any, handles: Any) -> int:  # noqa: N802
        count._obj.value = 2
        if handles is not None:
            handles[0], handles[1] = 1, 2
        return 0

    def vkGetPhysicalDeviceProperties(self, handle: ctypes.c_void_p, out: Any) -> None:  # noqa: N802
        out._obj.vendor, out._obj.device = (0x8086, 0x46A6) if handle.value == 1 else (0x10DE, 0x2684)

    def vkGetPhysicalDeviceMemoryProperties(self, handle: ctypes.c_void_p, out: Any) -> None:  # noqa: N802
        heaps = [(64 << 30, 0), (24 << 30, 1), (246 << 20, 1)] if handle.value == 2 else [(32 << 30, 1)]
        out._obj.heap_count = len(heaps)
        for heap, (nbytes, flags) in zip(out._obj.heaps, heaps, strict=False):
            heap.nbytes, heap.flags = nbytes, flags


def test_the_memory_of_a_card_is_the_largest_heap_that_vulkan_says_is_its_own() -> None:
    assert card_memory(0x10DE, 0x2684, lambda _: PlayedVulkan()) == 24 << 30
    assert card_memory(0x1002, 0x744C, lambda _: PlayedVulkan()) is None
    assert card_memory(0x10DE, 0x2684, lambda _: PlayedVulkan(status=-9)) is None
    assert card_memory(0x10DE, 0x2684, refuse) is None


@pytest.mark.parametrize("name", BACKENDS)
def test_every_probe_answers_on_this_machine_with_devices_or_a_reason(name: str) -> None:
    found = backend_choice.probe(name)
    assert bool(found.devices) != bool(found.reason)


def test_this_machine_gets_a_backend() -> None:
    assert choose().device
