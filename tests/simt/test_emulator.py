"""The emulator itself: it computes what a card would, and says of each wrong that a kernel may do what it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from tests.simt import build

KERNELS = """
#include "ptx.cuh"
extern "C" __global__ void reversed(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void raced(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void votes(unsigned* y) {
  unsigned odd = __ballot_sync(~0u, threadIdx.x & 1);
  y[threadIdx.x] = odd + __shfl_up_sync(~0u, threadIdx.x, 3) + __shfl_xor_sync(~0u, threadIdx.x, 5);
}
extern "C" __global__ void adds(unsigned* y) { atomicAdd(y, threadIdx.x); }
extern "C" __global__ void some_wait(float* y) {
  if (threadIdx.x < 16) __syncthreads();
  y[threadIdx.x] = 1.0f;
}
extern "C" __global__ void lanes_part(unsigned* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(~0u, threadIdx.x, 0);
  else y[threadIdx.x] = __shfl_sync(~0u, threadIdx.x, 1);
}
extern "C" __global__ void reads_early(const float* x, float* y, unsigned wait) {
  __shared__ alignas(16) float s[128];
  copy_async(s + 4 * threadIdx.x, x + 4 * threadIdx.x);
  copy_commit();
  if (wait) copy_wait<0>();
  y[threadIdx.x] = s[4 * threadIdx.x];
  copy_wait<0>();
}
extern "C" __global__ void misaligned(const float* x, float* y) {
  float4 four = *(const float4*)(x + 1);
  y[threadIdx.x] = four.w;
}
extern "C" __global__ void far_away(float* y) { y[-(1ll << 36)] = 1.0f; }
extern "C" __global__ void greedy() {
  extern __shared__ float s[];
  s[threadIdx.x] = 0.0f;
}
extern "C" __global__ void multiplied(const unsigned* a, const unsigned* b, float* d) {
  float own[4] = {};
  unsigned x[4], w[2];
  for (int i = 0; i < 4; i++) x[i] = a[4 * threadIdx.x + i];
  for (int i = 0; i < 2; i++) w[i] = b[2 * threadIdx.x + i];
  mma_m16n8k16(own, x, w);
  for (int i = 0; i < 4; i++) d[4 * threadIdx.x + i] = own[i];
}
"""


@cache
def library(*flags: str) -> build.Library:
    text = build.gathered("kernels.cu", {"kernels.cu": KERNELS})
    return build.Library(build.compiled(text, (), flags))


X = np.arange(128, dtype=np.float32)


def launched(name: str, block: int, *arguments: Any, flags: tuple[str, ...] = (), shared: int = 0) -> None:
    library(*flags).launch(name, (1, 1, 1), block, *arguments, shared=shared)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_barrier_lets_all_threads_see_what_was_written(order: int) -> None:
    y = np.zeros(64, np.float32)
    library().schedule(order)
    launched("reversed", 64, X, y)
    library().schedule(0)
    assert y.tolist() == X[:64][::-1].tolist()


def test_votes_and_shuffles_are_a_warps() -> None:
    y, lane = np.zeros(32, np.uint32), np.arange(32, dtype=np.uint32)
    launched("votes", 32, y)
    assert y.tolist() == (np.uint32(0xAAAAAAAA) + np.where(lane >= 3, lane - 3, lane) + (lane ^ 5)).tolist()


def test_atomics_lose_nothing() -> None:
    y = np.zeros(1, np.uint32)
    launched("adds", 1024, y)
    assert y[0] == 1024 * 1023 // 2


def test_mma_multiplies_the_fragments_of_the_manual() -> None:
    """The layout of the PTX manual: lane 4g + t has rows g and g + 8, columns 2t and 2t + 1 of each eight."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    x, w, d = np.zeros((32, 4, 2), np.float16), np.zeros((32, 2, 2), np.float16), np.zeros((32, 4), np.float32)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for i in range(4):
            x[lane, i] = a[g + i % 2 * 8, 2 * t + i // 2 * 8 :][:2]
        for i in range(2):
            w[lane, i] = b[2 * t + i * 8 :, g][:2]
    launched("multiplied", 32, x, w, d)
    found = np.zeros((16, 8), np.float32)
    for lane in range(32):
        for i in range(4):
            found[lane // 4 + i // 2 * 8, lane % 4 * 2 + i % 2] = d[lane, i]
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-6, atol=1e-6)


def test_a_copy_is_there_when_it_was_waited_for_and_not_before() -> None:
    y = np.zeros(32, np.float32)
    launched("reads_early", 32, X, y, 1)
    assert y.tolist() == X[::4].tolist()
    launched("reads_early", 32, X, y, 0)
    assert np.isnan(y).all()


def refused(says: str, run: Callable[[], None]) -> None:
    with pytest.raises(build.KernelError, match=says):
        run()


def test_what_a_kernel_does_wrong_is_said() -> None:
    y = np.zeros(64, np.float32)
    refused("a thread ends while 16 wait at __syncthreads", lambda: launched("some_wait", 32, y))
    refused("divergent collective", lambda: launched("lanes_part", 32, np.zeros(32, np.uint32)))
    refused(r"an illegal address \(0x", lambda: launched("far_away", 1, y))
    refused("a misaligned address", lambda: launched("misaligned", 1, X, y, flags=build.ALIGNED))
    refused("a race in shared memory", lambda: launched("raced", 64, X, y, flags=build.TRACED))
    refused("131072 bytes", lambda: launched("greedy", 32, shared=128 << 10))
    launched("reversed", 64, X, y, flags=build.TRACED)
    assert y[0] == 63
