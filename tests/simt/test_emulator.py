"""The emulator itself: it computes what a card would, and says of each wrong that a kernel may do what it is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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
struct alignas(1024) Room {
  unsigned short x[64 * 64];
  unsigned long long arrived;
};
extern "C" __global__ void hopper(const __grid_constant__ TensorMap map, const unsigned* a, float* d, unsigned without) {
  __shared__ Room room;
  if (threadIdx.x == 0) barrier_start(&room.arrived);
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_expect(&room.arrived, sizeof room.x);
    tensor_load(room.x, map, 0, 0, 0, &room.arrived);
  }
  if (without != 1) barrier_wait(&room.arrived, without == 3);
  float sums[32] = {};
  unsigned w[4];
  for (int i = 0; i < 4; i++) w[i] = a[4 * threadIdx.x + i];
  if (without != 4) wgmma_fence();
  wgmma_m64n64k16(sums, w, room.x + 16, false);
  wgmma_commit();
  if (without != 2) wgmma_wait<0>(sums);
  for (int i = 0; i < 32; i++) d[32 * threadIdx.x + i] = sums[i];
  barrier_wait(&room.arrived, 0);
  wgmma_wait<0>(sums);
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


Floats = NDArray[np.float32]


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


def hopper(without: int = 0) -> tuple[Floats, Floats]:
    """What the kernel finds of 64 rows of weights by 60 of x, and what it should, in the fragments of the PTX manual's
    "Register Fragments for wgmma.mma_async.m64k16": a warp has 16 rows of a and of d, as in mma."""
    rng = np.random.default_rng(1)
    a, x = rng.standard_normal((64, 16)).astype(np.float16), rng.standard_normal((60, 64)).astype(np.float16)
    given, d = np.zeros((128, 4, 2), np.float16), np.full((128, 32), np.nan, np.float32)
    row = [warp * 16 + g for warp in range(4) for g in range(8) for _ in range(4)]
    for thread in range(128):
        for i in range(4):
            given[thread, i] = a[row[thread] + i % 2 * 8, thread % 4 * 2 + i // 2 * 8 :][:2]
    tensor = struct.pack("<6Q4I8Q", x.ctypes.data, 64, 60, 1, 128, 128 * 60, 64, 64, 1, 3, *[0] * 8)
    launched("hopper", 128, tensor, given, d, without)
    found = np.zeros((64, 64), np.float32)
    for thread in range(128):
        for i in range(32):
            found[row[thread] + i % 4 // 2 * 8, i // 4 * 8 + thread % 4 * 2 + i % 2] = d[thread, i]
    expected = np.zeros((64, 64), np.float32)
    expected[:, :60] = a.astype(np.float32) @ x[:, 16:32].astype(np.float32).T
    return found, expected


@pytest.mark.parametrize("order", [0, 1, 2])
def test_hoppers_engines_bring_boxes_and_multiply_them_and_outside_of_a_tensor_there_are_zeros(order: int) -> None:
    library().schedule(order, 3)
    found, expected = hopper()
    library().schedule(0)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)


def test_what_hoppers_engines_do_is_there_when_it_was_waited_for_and_not_before() -> None:
    assert np.isnan(
        hopper(without=1)[0][:16]
    ).all()  # the first warp: at its end it waits, and the others see what has come
    assert not hopper(without=2)[0].any()


def refused(says: str, run: Callable[[], None]) -> None:
    with pytest.raises(build.KernelError, match=says):
        run()


def test_what_a_kernel_does_wrong_is_said() -> None:
    y = np.zeros(64, np.float32)
    refused("a thread ends while 16 wait at __syncthreads", lambda: launched("some_wait", 32, y))
    refused("divergent collective", lambda: launched("lanes_part", 32, np.zeros(32, np.uint32)))
    refused(r"an illegal address \(0x", lambda: launched("far_away", 1, y))
    refused("a misaligned address", lambda: launched("misaligned", 1, X, y, flags=build.TRACED))
    refused("a race in shared memory", lambda: launched("raced", 64, X, y, flags=build.TRACED))
    refused("an mbarrier .* that nobody completes", lambda: hopper(without=3))
    refused("wgmma without a fence", lambda: hopper(without=4))
    refused("131072 bytes", lambda: launched("greedy", 32, shared=128 << 10))
    launched("reversed", 64, X, y, flags=build.TRACED)
    assert y[0] == 63
