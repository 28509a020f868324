"""The CUDA kernels as NVRTC compiles them, for every architecture that is served: no card is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from pie_edge.backends.cuda import nvrtc
from pie_edge.errors import BackendError

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
_SCALES = {"0": 1, "1": 0, "2": 2, "3": 0, "4": 4, "5": 0, "6": 0, "7": 0}
"""Of each format of ``weights.cuh`` one that files have."""
_NODES = {
    "nodes_kth_largest.cu": ("LOCAL=512", "COPIES=4"),
    "nodes_nucleus.cu": ("LOCAL=512", "COPIES=4"),
    "nodes_top_k.cu": ("LOCAL=512", "COPIES=4", "TYPE=0", "K=1024"),
    "nodes_sort.cu": ("LOCAL=128", "TYPE=0", "BITS=6", "FALLING=1", "IS_FIRST=0", "IS_LAST=1"),
    "nodes_cumsum.cu": ("LOCAL=512", "IS_FLOAT=1"),
    "nodes_scatter.cu": ("LOCAL=512", "TYPE=0", "MODE=1", "IS_FIRST=1"),
    "nodes_pack_bits.cu": ("LOCAL=64",),
    "nodes_sample.cu": (
        *("LOCAL=512", "COPIES=4", "MASK=1", "TEMPERED=1", "STAGE_1=1", "STAGE_2=2", "STAGE_3=3", "STAGE_4=0"),
        "ALIGNED=1",
    ),
}
CEILINGS = {
    "linear": 184,
    "linear_tile": 128,
    "expert_linear": 128,
    "attention_decode": 104,
    "attention_prefill": 104,
    "attention_tile": 192,
}
"""Registers of a thread of the hot kernels, at most; what the others take is no matter."""

Module = tuple[str, tuple[str, ...]]


def modules() -> Iterator[Module]:
    """Every file, in the variants that differ most."""
    for file in nvrtc.sources():
        if file in _NODES:
            yield file, _NODES[file]
        elif file in ("attention.cu", "attention_mass.cu"):
            yield from ((file, (f"HALVES={halves}",)) for halves in (0, 1))
        elif file == "attention_tile.cu":
            yield from ((file, (f"WIDTH={width}",)) for width in (64, 128))
        elif file == "linear_tile.cu":
            yield from ((file, (f"FORMAT={form}", f"SCALES={_SCALES[form]}")) for form in "012345")
        elif file in ("embed.cu", "short_conv.cu", "linear.cu", "experts.cu"):
            for form, scales in list(_SCALES.items())[5 * (file == "short_conv.cu") :]:
                macros = (f"FORMAT={form}", f"SCALES={scales}")
                tokens = {"linear.cu": ("1", "8"), "experts.cu": ("4",)}.get(file, ())
                yield from ((file, (*macros, f"TOKENS={count}")) for count in tokens)
                if not tokens:
                    yield file, macros
        elif file.endswith(".cu"):
            yield file, ()


def told(file: str, macros: tuple[str, ...], architecture: int) -> str:
    options = (*nvrtc.OPTIONS, "--ptxas-options=-v", f"--gpu-architecture=sm_{architecture}")
    cubin, log = nvrtc.compiled(file, nvrtc.sources()[file], (*options, *(f"-D{macro}" for macro in macros)))
    assert cubin.startswith(b"\x7fELF")
    return log


_TOLD = re.compile(r"entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)


@pytest.mark.parametrize(("file", "macros"), list(modules()), ids=lambda part: part if isinstance(part, str) else "")
def test_a_kernel_compiles_without_spills(file: str, macros: tuple[str, ...]) -> None:
    """And within its registers. One architecture of seven in turn, for there are many: the next test has all for some."""
    architecture = ARCHITECTURES[sum((file + str(macros)).encode()) % len(ARCHITECTURES)]
    found = _TOLD.findall(told(file, macros, architecture))
    assert found
    for name, spilled, registers in found:
        assert int(spilled) == 0, f"{name} spills {spilled} bytes on sm_{architecture}"
        assert int(registers) <= CEILINGS.get(name, 255), f"{name} takes {registers} registers on sm_{architecture}"


HOT: tuple[Module, ...] = (
    *(("linear.cu", ("FORMAT=0", "SCALES=1", f"TOKENS={tokens}")) for tokens in (1, 8)),
    ("linear_tile.cu", ("FORMAT=0", "SCALES=1")),
    ("linear.cu", ("FORMAT=6", "SCALES=0", "TOKENS=1")),
    ("experts.cu", ("FORMAT=4", "SCALES=4", "TOKENS=4")),
    ("attention.cu", ("HALVES=1",)),
    ("attention_tile.cu", ("WIDTH=128",)),
    ("rope.cu", ()),
    ("norm.cu", ()),
    ("elementwise.cu", ()),
    ("nodes_sample.cu", _NODES["nodes_sample.cu"]),
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("file", "macros"), HOT, ids=[f"{file}-{n}" for n, (file, _) in enumerate(HOT)])
def test_a_hot_kernel_compiles_for_every_architecture(file: str, macros: tuple[str, ...], architecture: int) -> None:
    for name, spilled, registers in _TOLD.findall(told(file, macros, architecture)):
        assert int(spilled) == 0, f"{name} spills {spilled} bytes on sm_{architecture}"
        assert int(registers) <= CEILINGS.get(name, 255), f"{name} takes {registers} registers on sm_{architecture}"


def test_a_kernel_that_does_not_compile_says_what_the_compiler_said() -> None:
    with pytest.raises(BackendError, match="undefined"):
        nvrtc.compiled("wrong.cu", 'extern "C" __global__ void k() { x(); }', ("--gpu-architecture=sm_90",))


def test_cubins_are_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = nvrtc.Compiler(90, tmp_path)("adapter.cu", "", ())

    def never(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(nvrtc, "compiled", never)
    assert nvrtc.Compiler(90, tmp_path)("adapter.cu", "", ()) == first
    with pytest.raises(AssertionError, match="compiled again"):
        nvrtc.Compiler(89, tmp_path)("adapter.cu", "", ())


def test_a_compiler_that_has_nothing_to_say_changes_no_bytes_of_python_s() -> None:
    """An empty log is one byte long, and such bytes are one object wherever they come from."""
    _, log = nvrtc.compiled("empty.cu", 'extern "C" __global__ void k() {}', ("--gpu-architecture=sm_90",))
    assert log == "\0"
    assert [bytes([byte])[0] for byte in range(256)] == list(range(256))
