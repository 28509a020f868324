"""No CUDA kernel races or misaligns an access, and what shows it would show a kernel that did: each barrier of each file is taken
away, each bound is moved by one, and a trial must fail."""

from __future__ import annotations

import asyncio
import re

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.errors import DeviceLost
from tests.backend import cuda_emulated
from tests.backend.cuda_bench import AMPERE, HOPPER, SITES, Bench, Trial
from tests.backend.cuda_cases import GATED_TILE
from tests.backend.cuda_emulated import ON_CARD
from tests.backend.cuda_trials import TRIALS
from tests.backend.device_cases import check
from tests.backend.openers import cuda
from tests.simt import build
from tests.simt.mutants import Site

pytestmark = pytest.mark.skipif(ON_CARD, reason="says something of the emulator")

_PAGES = "keys come in whole pages, so that one more or one less of them begins no other step of the loop"
_BLOCKS = "columns come in whole blocks of 32, so that one more or one less begins no other step of the loop"
_LEAST = "a mass that is more by the least that there is moves no edge"
SAME: dict[str, str] = {
    "attention.cu: base < end": _PAGES,
    "attention.cu: begin >= total": _PAGES,
    "attention.cu: total <= split": f"{_PAGES}, and a single split is what it is also where it is merged",
    "attention.cu: i < splits": "a number near the largest serves a softmax as well as the largest",
    "attention_mass.cu: j < total #3": "the last key begins no page, and a key past the last has no weight",
    "attention_tile.cu: base < total": _PAGES,
    "bins.cuh: stretches[stretch] < wanted #2": _LEAST,
    "bins.cuh: here >= wanted #2": _LEAST,
    "experts.cu: at < width": _BLOCKS,
    "linear.cu: at < width": _BLOCKS,
    "nodes_cumsum.cu: fabsf(total) >= fabsf(value)": "of numbers so close both formulas keep the same",
    "nodes_sample.cu: index < place": "no two draws are equal to the last bit",
    "nodes_scatter.cu: key_of(update, TYPE) < key_of(old, TYPE)": "of equal entries it is no matter which is kept",
    "nodes_scatter.cu: key_of(update, TYPE) > key_of(old, TYPE)": "of equal entries it is no matter which is kept",
    "product.cuh: back < infinity()": "nothing is one more than infinity",
    "product.cuh: base < s.columns": _BLOCKS,
    "product.cuh: column < s.columns": "four columns are all there or all not",
    "product.cuh: p.group < ITEM": "groups are 16, 32, 64 columns and so on",
}
"""Sites that no mutant makes a difference at, and why."""
_OF_THE_SAME = 3
"""Trials that show it."""


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(TRIALS)


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_threads_never_race_for_memory_and_no_access_is_misaligned(bench: Bench, trial: Trial) -> None:
    bench.try_out(trial)


def test_every_file_and_every_barrier_and_bound_is_tried(bench: Bench) -> None:
    assert not [str(site) for site in SITES.found if not bench.reaching(site) and str(site) not in SAME]
    assert SAME.keys() <= set(map(str, SITES.found))
    assert nvrtc.sources().keys() - bench.files == {"ptx.cuh"}


def test_no_barrier_is_written_so_that_it_is_no_site() -> None:
    """Each file's words that begin or end like one, but for those in comments."""
    for file in nvrtc.sources().keys() - {"ptx.cuh"}:
        code = re.sub(r"//.*", "", nvrtc.sources()[file])
        written = re.findall(r"\b(?:__sync\w*|(?:\w+_)?barrier\w*|\w+_(?:wait|fence|commit))\b", code)
        assert len(written) == sum(site.is_barrier for site in SITES.found if site.file == file), file


@pytest.mark.parametrize("site", SITES.found, ids=str)
def test_a_kernel_without_a_barrier_or_with_a_bound_that_is_one_off_is_caught(bench: Bench, site: Site) -> None:
    is_same, trials = str(site) in SAME, bench.reaching(site)
    tried = trials[:_OF_THE_SAME] if is_same else trials
    caught = any(bench.catches(trial, mutant) for trial in tried for mutant in site.mutants)
    assert caught != is_same


INDICES = (
    ("weights.cuh", "item) * ROWS + row % ROWS", "item + 1) * ROWS + row % ROWS", "linear bf16 7 rows", AMPERE),
    ("linear_tile.cu", "t % 2 * 2", "t % 2", GATED_TILE, AMPERE),
    ("linear_tile.cu", "copy_wait<STAGES - 2>", "copy_wait<STAGES - 1>", GATED_TILE, AMPERE),
    ("attention_tile.cu", "2 * c + n / 2 * 8", "2 * c + n / 2 * 4", "halves attention batch", AMPERE),
    ("rope.cu", "slot % cache.page", "(slot + 1) % cache.page", "attention decode", AMPERE),
    ("linear_wgmma.cu", "turn ^= 1", "turn ^= 0", GATED_TILE, HOPPER),
    ("linear_wgmma.cu", "part % 2 * 16", "part % 2 * 8", GATED_TILE, HOPPER),
    ("linear_wgmma.cu", "part != 0", "true", GATED_TILE, HOPPER),
    ("linear_wgmma.cu", "own.first + i / 2", "own.first + i % 2", GATED_TILE, HOPPER),
)
"""A file, an index in it, another one, a case that must notice, and on what generation."""


@pytest.mark.parametrize("mutant", INDICES, ids=lambda mutant: f"{mutant[0]}: {mutant[1]}")
def test_a_kernel_with_another_index_is_caught(mutant: tuple[str, str, str, str, int]) -> None:
    file, old, new, case, generation = mutant
    text = nvrtc.sources()[file]
    changed = text.replace(old, new)
    assert changed != text
    compiler = cuda_emulated.compiler({**nvrtc.sources(), file: changed}, build.TRACED)
    with cuda_emulated.architecture(generation):
        backend = cuda(compile_kernels=compiler)
        try:
            with pytest.raises((AssertionError, DeviceLost)):
                check(backend, case)
        finally:
            cuda_emulated.mend()
            asyncio.run(backend.close())
