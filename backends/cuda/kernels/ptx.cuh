// What CUDA C++ has only as PTX, one function each. No other file has assembly, so that the emulator of tests/simt replaces
// this one and runs all others as they are.
#pragma once

__device__ __forceinline__ float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// x − y of two halves each.
__device__ __forceinline__ unsigned subtract_halves(unsigned x, unsigned y) {
  unsigned found;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(found) : "r"(x), "r"(y));
  return found;
}

// d += a · b of 16 × 16 and 16 × 8 halves, summed in float32, by a whole warp. Turing's instruction takes eight columns of a.
__device__ __forceinline__ void mma_m16n8k16(float d[4], const unsigned a[4], const unsigned b[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  for (int half = 0; half < 2; half++)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

#if __CUDA_ARCH__ >= 800
// The same of bfloat16, which Turing doesn't multiply.
__device__ __forceinline__ void mma_m16n8k16_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// 16 bytes from global to shared memory, on their own from Ampere on; there once copy_wait says so, to this thread alone.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  unsigned place = (unsigned)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(place), "l"(global) : "memory");
#else
  *(uint4*)shared = *(const uint4*)global;
#endif
}
__device__ __forceinline__ void copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
// Until all but the last PENDING groups are there.
template <int PENDING> __device__ __forceinline__ void copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
#endif
}

// The first multiple of 1,024 from here on, as shared memory counts.
__device__ __forceinline__ void* aligned_1024(void* shared) {
  return (char*)shared + (-(unsigned)__cvta_generic_to_shared(shared) & 1023);
}

// A tensor in global memory, as the driver describes it to Hopper's copying engine.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

#if __CUDA_ARCH__ == 900
// A barrier that one thread's expectation and so many copied bytes let pass. All threads may use it once the block has met again.
__device__ __forceinline__ void barrier_start(unsigned long long* barrier) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;\n" ::"r"(place) : "memory");
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(unsigned long long* barrier, unsigned bytes) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(place), "r"(bytes) : "memory");
}
// Until its turn of this parity is over: the first is 0, the next 1, and so on in turns.
__device__ __forceinline__ void barrier_wait(unsigned long long* barrier, unsigned parity) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barrier), over;
  do asm volatile("{ .reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p; }\n"
                  : "=r"(over) : "r"(place), "r"(parity) : "memory");
  while (!over);
}
// A box of a tensor from these coordinates on; what lies outside of the tensor is zeros. Its bytes count for the barrier.
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap& map, int x, int y, int z, unsigned long long* barrier) {
  unsigned to = (unsigned)__cvta_generic_to_shared(shared), place = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];\n"
               ::"r"(to), "l"(&map), "r"(place), "r"(x), "r"(y), "r"(z) : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// Until all but the last PENDING groups are done, of which one made these sums.
template <int PENDING> __device__ __forceinline__ void wgmma_wait(float d[32]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "n"(PENDING) : "memory");
}
// d = a · bᵀ (+ d) of 64 × 16 halves, 16 rows in each of four warps' registers as mma has them, and 64 × 16 in shared memory: in
// rows of 128 bytes, eight of which are swizzled. Runs on its own until it is waited for.
__device__ __forceinline__ void wgmma_m64n64k16(float d[32], const unsigned a[4], const void* b, bool adds) {
  // Address and the 1,024 bytes from eight rows to the next, in units of 16; layout 1 is the swizzle of 128 bytes.
  unsigned long long described = ((unsigned)__cvta_generic_to_shared(b) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(described), "r"((int)adds));
}
#endif
