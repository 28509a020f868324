"""The CUDA kernels as NVRTC compiles them, for every architecture that is served: no card is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from pie_edge.backends.cuda import nvrtc
from pie_edge.errors import BackendError
from tests.backend.cuda_card import compile_all
from tests.backend.cuda_registers import ARCHITECTURES, CEILINGS, Module, all_of, modules, record
from tests.simt.build import ON_CARD

_GRANULE = 8
"""Registers are given to threads by eights: what another version of the compiler may take more."""
AGAIN = "run `python -m tests.backend.cuda_registers`"
HOT = tuple(
    map(
        Module.named,
        (
            "linear.cu FORMAT=0 SCALES=1 TOKENS=1",
            "linear.cu FORMAT=0 SCALES=1 TOKENS=8",
            "linear.cu FORMAT=6 SCALES=0 TOKENS=1",
            "linear_tile.cu FORMAT=0 SCALES=1 STAGES=4",
            "linear_tile.cu FORMAT=2 SCALES=2 STAGES=3 SIXTEENS=1",
            "linear_tile.cu FORMAT=6 SCALES=0 STAGES=2",
            "linear_wgmma.cu FORMAT=0 SCALES=1 STAGES=4",
            "halve.cu SHARED=0",
            "experts.cu FORMAT=4 SCALES=4 TOKENS=4",
            "attention.cu HALVES=1",
            "attention_tile.cu WIDTH=64",
            "rope.cu",
            "norm.cu",
            "elementwise.cu",
        ),
    )
)


def test_every_module_was_compiled_for_every_architecture_as_it_is_now() -> None:
    """The record has its digest: what was compiled is today's text, without spills, within the ceilings."""
    modules = record()["modules"]
    assert {file for file in nvrtc.sources() if file.endswith(".cu")} == {Module.named(name).file for name in modules}
    for name, found in modules.items():
        module = Module.named(name)
        assert found["digest"] == module.digest, f"{name} has changed; {AGAIN}"
        for kernel, registers in found["kernels"].items():
            assert tuple(map(int, registers)) == module.architectures, f"{kernel} of {name}; {AGAIN}"
            assert max(registers.values()) <= CEILINGS.get(kernel, 255)


def test_the_record_has_every_module_that_cases_and_the_self_test_come_to() -> None:
    pytest.importorskip("tests.support.needs_simt")
    if ON_CARD:
        pytest.skip("lowers for a card of each generation, on the emulator")
    missing = {str(module) for module in modules(None)} - record()["modules"].keys()
    assert not missing, AGAIN


def chosen() -> list[tuple[Module, int]]:
    """The hot ones for all architectures, and one of each file for one of them in turn: all would take minutes."""
    firsts = {Module.named(name).file: Module.named(name) for name in reversed(record()["modules"])}
    turns = [(m, m.architectures[n % len(m.architectures)]) for n, m in enumerate(firsts.values())]
    return [*((module, architecture) for module in HOT for architecture in module.architectures), *turns]


@pytest.mark.skipif(ON_CARD, reason="takes minutes, and says nothing of the card")
def test_what_is_compiled_again_takes_no_more_than_was_recorded() -> None:
    known = record()
    more = 0 if known["nvrtc"] == ".".join(map(str, nvrtc.version())) else _GRANULE
    seen = set()
    for module, architecture, found in all_of(chosen()):
        assert not found.faults
        seen.add(architecture)
        for kernel, registers in found.registers.items():
            recorded = known["modules"][str(module)]["kernels"][kernel][str(architecture)]
            assert registers <= recorded + more, f"{kernel} of {module} on sm_{architecture}; if it must be so, {AGAIN}"
    assert seen == set(ARCHITECTURES)


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


def test_what_a_cards_tests_want_is_compiled_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Module("adapter.cu", ()), Module.named("linear_wgmma.cu FORMAT=0 SCALES=1 STAGES=4")]
    assert compile_all(wanted, 89, tmp_path) == 1
    monkeypatch.delattr(nvrtc, "compiled")
    assert nvrtc.Compiler(89, tmp_path)("adapter.cu", "", ())


def test_a_compiler_that_has_nothing_to_say_changes_no_bytes_of_python_s() -> None:
    """An empty log is one byte long, and such bytes are one object wherever they come from."""
    _, log = nvrtc.compiled("empty.cu", 'extern "C" __global__ void k() {}', ("--gpu-architecture=sm_90",))
    assert log == "\0"
    assert [bytes([byte])[0] for byte in range(256)] == list(range(256))
