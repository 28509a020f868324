// What a card's engines do beside its threads: cp.async, TMA with its mbarriers, wgmma. Each is done when it is waited for and not
// before. Until then its place in shared memory is written in the eyes of a traced build, from when it was asked for on.
#include "simt.h"

namespace simt {

namespace {

constexpr int ROW = 128, SWIZZLED = 1024;  // bytes of a row of the swizzle, and of the eight rows that it repeats after

// Where a byte of a box lies: pieces of 16 bytes change places with those of other rows.
char* swizzled(char* place) {
  uintptr_t at = (uintptr_t)place;
  return (char*)(at ^ (at / ROW % 8) * 16);
}

template <class T> std::vector<T>& open(std::vector<std::vector<T>>& groups) {
  if (groups.empty()) groups.emplace_back();
  return groups.back();
}
template <class T> void commit(std::vector<std::vector<T>>& groups) { open(groups), groups.emplace_back(); }

float half(const char* place) {
  _Float16 value;
  memcpy(&value, place, 2);
  return (float)value;
}

Barrier& started(const void* barrier) {
  auto found = now.block->barriers.find(barrier);
  if (found == now.block->barriers.end()) fail("an mbarrier that was not started");
  return found->second;
}
void settle(Barrier& b) {
  if (!b.arrived || b.bytes) return;
  b.turns++, b.arrived = false;
  wake();
}

// All of a box: rows of 128 bytes, zeros for what lies outside of the tensor.
void land(const Box& box) {
  const TensorMap& m = box.map;
  char* to = (char*)box.target;
  for (uint32_t z = 0; z < m.box[2]; z++)
    for (uint32_t y = 0; y < m.box[1]; y++)
      for (uint32_t x = 0; x < m.box[0]; x++, to += 2) {
        uint64_t at[3] = {box.from[0] + x, box.from[1] + y, box.from[2] + z};
        bool inside = at[0] < m.extents[0] && at[1] < m.extents[1] && at[2] < m.extents[2];
        const char* from = (const char*)m.address + at[0] * 2 + at[1] * m.strides[0] + at[2] * m.strides[1];
        if (inside) memcpy(swizzled(to), from, 2);
        else memset(swizzled(to), 0, 2);
      }
  engine_touch(box.target, (int)(to - (char*)box.target), true);
}

// One of the products that all lanes of a warp have in a group: lane 4g + t has rows g and g + 8 of a, as in mma, and of eight columns
// of d those from 2t on. b is 64 rows of 16 columns.
void run(Warp& warp, size_t group, size_t number) {
  float b[64][16];
  const Product& first = warp.lanes[0]->products[group][number];
  for (int n = 0; n < 64; n++) {
    for (int k = 0; k < 16; k++) b[n][k] = half(swizzled((char*)first.b + n * ROW + 2 * k));
    engine_touch(swizzled((char*)first.b + n * ROW), 16, false);
    engine_touch(swizzled((char*)first.b + n * ROW + 16), 16, false);
  }
  for (int lane = 0; lane < 32; lane++) {
    const Product& own = warp.lanes[lane]->products[group][number];
    for (int r = 0; r < 2; r++) {
      float a[16];
      for (int k = 0; k < 16; k++) {
        const Product& other = warp.lanes[lane / 4 * 4 + k % 8 / 2]->products[group][number];
        a[k] = half((const char*)(other.a + k / 8 * 2 + r) + k % 2 * 2);
      }
      for (int i = 0; i < 16; i++) {
        int n = i / 2 * 8 + lane % 4 * 2 + i % 2;
        float& d = own.d[i / 2 * 4 + 2 * r + i % 2];
        float sum = own.adds ? d : 0.0f;
        for (int k = 0; k < 16; k++) sum += a[k] * b[n][k];
        d = sum;
      }
    }
  }
}

}  // namespace

void copy(void* shared, const void* global) {
  if ((uintptr_t)shared % 16 || (uintptr_t)global % 16) fail("cp.async of an address that 16 does not divide");
  touch(global, 16, false, __builtin_return_address(0));
  touch(shared, 16, true, __builtin_return_address(0));
  open(now.fiber->copies).push_back({shared, global});
}
void commit_copies() { commit(now.fiber->copies); }
void wait_for_copies(size_t pending) {
  auto& groups = now.fiber->copies;
  while (groups.size() > pending + 1) {
    for (auto& one : groups.front()) {
      memcpy(one.target, one.source, 16);
      engine_touch(one.target, 16, true);
    }
    groups.erase(groups.begin());
  }
}

void barrier_start(const void* barrier) { now.block->barriers[barrier] = {}; }
void barrier_expect(const void* barrier, unsigned bytes) {
  Barrier& b = started(barrier);
  if (b.arrived) fail("an mbarrier of one arrival that two expect something of");
  b.arrived = true, b.bytes += bytes;
  settle(b);
}
void barrier_wait(const void* barrier, unsigned parity, int line) {
  for (;;) {
    Barrier& b = started(barrier);
    for (auto& box : b.boxes) {
      land(box);
      b.bytes -= 2 * box.map.box[0] * box.map.box[1] * box.map.box[2];
    }
    b.boxes.clear();
    settle(b);
    if (b.turns % 2 != parity) return;
    pause(line);
  }
}
void tensor_load(void* shared, const TensorMap& map, int x, int y, int z, const void* barrier) {
  if ((uintptr_t)shared % SWIZZLED) fail("a swizzled box at an address that %d does not divide", SWIZZLED);
  engine_touch(shared, 2 * map.box[0] * map.box[1] * map.box[2], true);
  started(barrier).boxes.push_back({shared, map, {x, y, z}});
  wake();
}

void products_fence() { now.fiber->fenced = true; }
void multiply(float* d, const unsigned* a, const void* b, bool adds) {
  if (!now.fiber->fenced) fail("a group of wgmma without a fence");
  open(now.fiber->products).push_back({d, a, (const char*)b, adds});
}
void commit_products() { commit(now.fiber->products), now.fiber->fenced = false; }
void wait_for_products(size_t pending, int line) {
  Fiber* f = now.fiber;
  warp_sync(~0u, 10, line);
  if (f->lane == 0)
    for (size_t group = 0; group + pending + 1 < f->products.size(); group++)
      for (size_t number = 0; number < f->products[group].size(); number++) run(*f->warp, group, number);
  warp_sync(~0u, 11, line);
  while (f->products.size() > pending + 1) f->products.erase(f->products.begin());
}

void check_waited(const Fiber& fiber) {
  for (auto& group : fiber.copies)
    if (!group.empty()) fail("a thread ends while its cp.async was not waited for");
  for (auto& group : fiber.products)
    if (!group.empty()) fail("a thread ends while its wgmma was not waited for");
}
void check_waited(const Block& block) {
  for (auto& [place, barrier] : block.barriers)
    if (!barrier.boxes.empty()) fail("a block ends while a box of its TMA was not waited for");
}

}  // namespace simt
