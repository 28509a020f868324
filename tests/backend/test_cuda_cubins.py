"""Machine code kept on disk: only what is whole comes back, and it takes no more room than it may."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.cubins import Cubins
from tests.backend import cuda_emulated
from tests.backend.device import put
from tests.backend.protocol_on_backend import doubling, run

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="plays the compiler")

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda kept: b"",
    "its first hundred bytes": lambda kept: kept[:100],
    "without its last byte": lambda kept: kept[:-1],
    "one bit another": lambda kept: kept[:-1] + bytes([kept[-1] ^ 1]),
    "no digest before it": lambda kept: kept[32:],
}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were compiled, by the emulator in NVRTC's place."""
    told: list[str] = []

    def played(file: str, text: str, options: tuple[str, ...]) -> tuple[bytes, str]:
        told.append(file)
        defines = tuple(option[2:] for option in options if option.startswith("-D"))
        return cuda_emulated.ordinary(file, "" if text == nvrtc.sources().get(file) else text, defines), ""

    monkeypatch.setattr(nvrtc, "compiled", played)
    return told


def doubled(folder: Path) -> None:
    """A Program runs on a device that is opened with this folder, and is right."""

    async def test() -> None:
        backend = cuda_emulated.opened(compile_kernels=nvrtc.Compiler(86, folder))
        executable = await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))})
        ((_, found),) = (await backend.read(backend.run(executable, {}))).items()
        assert np.array_equal(np.asarray(found), np.full(8, 2, np.float32))
        await backend.close()

    run(test)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cubin_is_compiled_again_and_kept(damage: str, tmp_path: Path, compiled: list[str]) -> None:
    doubled(tmp_path)
    first = list(compiled)
    doubled(tmp_path)
    assert compiled == first
    files = list((tmp_path / "cuda").iterdir())
    assert files
    for file in files:
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
    doubled(tmp_path)
    assert sorted(compiled) == sorted(2 * first)
    doubled(tmp_path)
    assert len(compiled) == 2 * len(first)


def test_the_least_recently_used_go_where_all_take_too_much_room(tmp_path: Path) -> None:
    cubins = Cubins(tmp_path, most=1000)
    for number in range(4):
        cubins.write(f"{number}.cubin", bytes(200))
        os.utime(tmp_path / f"{number}.cubin", (number, number))
    assert cubins.read("0.cubin") == bytes(200)  # and so it was used last
    cubins.write("4.cubin", bytes(200))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.cubin", "3.cubin", "4.cubin"]
    cubins.write("large.cubin", bytes(2000))
    assert [path.name for path in tmp_path.iterdir()] == ["large.cubin"]


def test_a_folder_that_can_t_be_made_keeps_nothing_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cubins = Cubins(tmp_path / "file")
    cubins.write("a.cubin", b"code")
    assert cubins.read("a.cubin") is None
