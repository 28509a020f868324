// Runs kernels for GPUs on the CPU: every thread is a fiber, and barriers, shuffles, votes and atomics do what they do on a
// card. What a kernel does wrong ends its launch with a message: a barrier that not all threads reach, lanes that meet at
// different collectives, shared memory over the limit, and, in a traced build (trace.cpp), a race and a misaligned address.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define SIMT_EXPORT extern "C" __attribute__((visibility("default")))

struct dim3 { unsigned x, y, z; };
struct uint3 { unsigned x, y, z; };

namespace simt {

constexpr int MOST_THREADS = 1024, STACK = 64 << 10, MESSAGE = 512;
constexpr size_t ARENA = 256 << 10;
constexpr int SYNCWARP = 1;
enum Order : unsigned { FORWARD, BACKWARD, SHUFFLED };

struct Copy { void* target; const void* source; };
// A wgmma's part of one lane.
struct Product { float* d; const unsigned* a; const char* b; bool adds; };
// As driver.cpp writes it, in the place of what NVIDIA's driver would: of halves, extents and box from the innermost on.
struct TensorMap { uint64_t address, extents[3], strides[2]; uint32_t box[3], swizzle; uint64_t more[8]; };
struct Box { void* target; TensorMap map; int from[3]; };
// An mbarrier of one arrival.
struct Barrier { uint64_t turns; int64_t bytes; bool arrived; std::vector<Box> boxes; };

struct Warp;
struct Fiber {
  void* stack;
  uint3 place;
  int lane, line;
  unsigned phase;  // of its warp's exchanges
  int operation;
  uint32_t mask;
  Warp* warp;
  // Groups of cp.async and of wgmma that have not been waited for; the last is not committed.
  std::vector<std::vector<Copy>> copies;
  std::vector<std::vector<Product>> products;
  bool fenced;
};
struct Warp {
  // Lanes that can run, that have not ended, that wait for lanes, for the block, for an mbarrier.
  uint32_t ready, alive, waiting, parked, paused;
  int number;
  uint64_t epoch;  // __syncwarps that all of it passed
  Fiber* lanes[32];
  uint64_t slots[2][32][8];
  float products[128];  // of the latest mma
};
struct Block {
  Fiber fibers[MOST_THREADS];
  Warp warps[32];
  int threads, warp_count, parked, alive;
  uint64_t number, epoch;
  // The epoch that began with the last barrier that orders device memory, where not all do; and whether the next one does.
  uint64_t device_epoch;
  bool orders_device;
  void* host;
  char *stacks, *arena, *dynamic;
  size_t used, dynamic_size, most_used;
  std::map<const void*, Barrier> barriers;
};
struct Context {
  uint3 thread, block_place;
  dim3 block_extent, grid_extent;
  Fiber* fiber;
  Block* block;
  void (*entry)(void*);
  void* argument;
};

extern Context now;
extern char message[MESSAGE];
extern size_t shared_limit;
// Barriers order device memory only where they say so: Metal's, and not CUDA's.
extern bool orders_device_apart;

// Of a traced build: the block has ended, and what it did is counted.
#ifdef SIMT_TRACE
void block_ended();
// An access from a place of the code.
void touch(const void* place, int size, bool write, void* from);
// What is no instruction of its own but can race: what an engine does on behalf of this thread, and an atomic, which races with
// all but atomics.
void engine_touch(const void* place, int size, bool write);
void atomic_touch(const void* place, int size);
#else
inline void block_ended() {}
inline void touch(const void*, int, bool, void*) {}
inline void engine_touch(const void*, int, bool) {}
inline void atomic_touch(const void*, int) {}
#endif

// Of a text with sites (mutants.py): whether a barrier is there, and a bound, which may be one off.
bool kept(int site);
int off(int site);
template <class T> inline T bound(int site, T value) { return value + (T)off(site); }

[[noreturn]] void fail(const char* form, ...);
void warp_sync(uint32_t mask, int operation, int line);
void block_sync(int line);
// Until somebody wakes all that pause.
void pause(int line);
void wake();

void copy(void* shared, const void* global);
void commit_copies();
void wait_for_copies(size_t pending);
void barrier_start(const void* barrier);
void barrier_expect(const void* barrier, unsigned bytes);
void barrier_wait(const void* barrier, unsigned parity, int line);
void tensor_load(void* shared, const TensorMap& map, int x, int y, int z, const void* barrier);
void products_fence();
void multiply(float* d, const unsigned* a, const void* b, bool adds);
void commit_products();
void wait_for_products(size_t pending, int line);
// Fails if something that runs on its own was not waited for by a thread that ends, or by a block.
void check_waited(const Fiber& fiber);
void check_waited(const Block& block);
// Each lane's value, 64 bytes at most, to all lanes of the mask.
uint64_t (*exchange(uint32_t mask, const void* value, size_t size, int operation, int line))[8];
// All blocks of a grid, one after the other; 0, or 1 with a message. With `whole`, so many threads are there in all: a block at
// the grid's edge has fewer than the others.
int launch_entry(void (*entry)(void*), void* argument, dim3 grid, dim3 extent, size_t dynamic_size, dim3 whole = {});

#define SIMT_UNTRACED __attribute__((no_sanitize("thread")))
// Fibers change only at barriers and collectives: plain code is atomic. A traced build must not take it for a race.
#define SIMT_ATOMIC __attribute__((no_sanitize("thread"), noinline))

template <class T> SIMT_UNTRACED inline T slot_value(const uint64_t* slot) {
  T value;
  memcpy(&value, slot, sizeof value);
  return value;
}

// A __shared__ array: one place in the block's arena for each declaration, in the order they are reached. NaNs at first.
template <class T, int SITE> SIMT_UNTRACED T& shared_array() {
  static uint64_t block = 0;
  static char* place;
  Block* b = now.block;
  if (block != b->number) {
    block = b->number;
    size_t alignment = alignof(T) < 16 ? 16 : alignof(T);
    b->used = (b->used + alignment - 1) & ~(alignment - 1);
    place = b->arena + b->used;
    b->used += sizeof(T);
    if (b->used + b->dynamic_size > shared_limit) fail("%zu + %zu bytes of shared memory", b->used, b->dynamic_size);
    if (b->used > b->most_used) b->most_used = b->used;
  }
  return *reinterpret_cast<T*>(place);
}
template <class T> SIMT_UNTRACED inline T argument(const void* place) {
  T value;
  memcpy(&value, place, sizeof value);
  return value;
}
template <class T> inline T* dynamic_shared() { return reinterpret_cast<T*>(now.block->dynamic); }

template <class... A> int sizes(void (*)(A...), int* found, int room) {
  int i = 0;
  ((i < room ? (void)(found[i] = sizeof(A)) : (void)0, i++), ...);
  return i;
}
template <class... A>
int launch(void (*kernel)(A...), void** arguments, dim3 grid, dim3 block, size_t dynamic_size, dim3 whole = {}) {
  struct Call { void (*kernel)(A...); void** arguments; } call{kernel, arguments};
  auto entry = [](void* given) SIMT_UNTRACED {
    Call* c = (Call*)given;
    [&]<size_t... I>(std::index_sequence<I...>) SIMT_UNTRACED {
      c->kernel(argument<std::remove_const_t<A>>(c->arguments[I])...);
    }(std::index_sequence_for<A...>{});
  };
  return launch_entry(entry, &call, grid, block, dynamic_size, whole);
}

}  // namespace simt

#define SIMT_KERNEL(NAME)                                                                                                 \
  SIMT_EXPORT int simt_launch_##NAME(void** a, dim3 g, dim3 b, size_t s) { return simt::launch(NAME, a, g, b, s); }       \
  SIMT_EXPORT int simt_sizes_##NAME(int* z, int n) { return simt::sizes(NAME, z, n); }
