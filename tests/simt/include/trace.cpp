// A traced build is compiled as for ThreadSanitizer, whose library this replaces: every load and store comes here. It finds
// addresses that aren't multiples of an access's size, and races of a block's threads in shared and in device memory; it counts
// bank conflicts in the one, and in the other the sectors that each warp's accesses touch.
#include "simt.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace simt {

struct Seen { int thread; uint64_t epoch, warp_epoch; };  // the epoch counts barriers of all blocks; 0 is never
// Who did one kind of thing to a place since the block met: the last, the last other thread, and whether they are of several warps.
struct Doers {
  Seen last, other;
  bool warps;

  void add(const Seen& mine) {
    if (last.epoch != mine.epoch) other = {}, warps = false;
    else if (last.thread != mine.thread) other = last, warps = warps || last.thread / 32 != mine.thread / 32;
    last = mine;
  }
  // One that neither a barrier nor __syncwarp has before what a thread does, or null.
  const Seen* beside(const Seen& mine) const {
    const Seen& one = last.thread == mine.thread ? other : last;
    if (last.epoch != mine.epoch || one.epoch != mine.epoch) return nullptr;
    return warps || one.thread / 32 != mine.thread / 32 || one.warp_epoch == mine.warp_epoch ? &one : nullptr;
  }
};
enum Doing { READS, WRITES, CHANGES, DOINGS };  // the last is what atomics do
struct Shadow { Doers doers[DOINGS]; };
static Shadow shared_shadow[ARENA / 2];  // of each half word
static std::unordered_map<uintptr_t, Shadow> device_shadow;
static uint64_t shared_epoch = 1;

struct Access { const char* place; int size; };
// An instruction of a warp: the lanes' nth accesses from one place of the code.
struct Key {
  void* from; int warp, nth;
  bool operator<(const Key& o) const { return std::tie(from, warp, nth) < std::tie(o.from, o.warp, o.nth); }
};
struct Counts { uint64_t instructions, sectors, ideal_sectors, waves, ideal_waves; };
static std::map<Key, std::vector<Access>> global_accesses, shared_accesses;
static std::map<std::pair<void*, int>, int> times;
static Counts global_counts[2], shared_counts;

// Each byte once, whatever many lanes read it.
static size_t bytes_of(std::vector<Access> lanes) {
  std::sort(lanes.begin(), lanes.end(), [](const Access& x, const Access& y) { return x.place < y.place; });
  const char* end = nullptr;
  size_t bytes = 0;
  for (auto& a : lanes) {
    if (a.place + a.size <= end) continue;
    bytes += a.place + a.size - std::max(a.place, end);
    end = a.place + a.size;
  }
  return bytes;
}

void block_ended() {
  shared_epoch += 1 << 20;
  device_shadow.clear();
  for (auto& [key, lanes] : global_accesses) {
    std::vector<uintptr_t> sectors;
    size_t bytes = bytes_of(lanes);
    for (auto& a : lanes)
      for (uintptr_t s = (uintptr_t)a.place / 32; s <= ((uintptr_t)a.place + a.size - 1) / 32; s++) sectors.push_back(s);
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    Counts& c = global_counts[lanes[0].size >= 8];
    c.instructions++, c.sectors += sectors.size(), c.ideal_sectors += std::min(sectors.size(), (bytes + 31) / 32);
  }
  for (auto& [key, lanes] : shared_accesses) {
    // Lanes of wide accesses go in turns: 8 bytes by half a warp, 16 by a quarter.
    int together = 32 / std::max(1, lanes[0].size / 4);
    for (size_t first = 0; first < lanes.size(); first += together) {
      std::vector<uintptr_t> words[32];
      for (size_t i = first; i < std::min(lanes.size(), first + together); i++)
        for (uintptr_t w = (uintptr_t)lanes[i].place / 4; w <= ((uintptr_t)lanes[i].place + lanes[i].size - 1) / 4; w++)
          if (std::find(words[w % 32].begin(), words[w % 32].end(), w) == words[w % 32].end()) words[w % 32].push_back(w);
      size_t waves = 1;
      for (auto& bank : words) waves = std::max(waves, bank.size());
      shared_counts.waves += waves, shared_counts.ideal_waves++;
    }
    shared_counts.instructions++;
  }
  global_accesses.clear(), shared_accesses.clear(), times.clear();
}

// Whether it is a place of the kernel's, not of its threads' stacks or of the emulator.
static bool is_of_kernel(const char* at) {
  Block* b = now.block;
  auto within = [&](const void* from, size_t size) { return at >= (const char*)from && at < (const char*)from + size; };
  return now.fiber && !message[0] && !within(b->stacks, (size_t)MOST_THREADS * STACK) && !within(&now, sizeof now) && !within(b, sizeof *b);
}
static void look_for_races(const char* place, int size, Doing doing) {
  Block* b = now.block;
  bool shared = place >= b->arena && place < b->arena + ARENA;
  // What orders shared memory may leave device memory as it was.
  bool apart = !shared && orders_device_apart;
  Seen mine = {(int)(now.fiber - b->fibers), shared_epoch + (apart ? b->device_epoch : b->epoch), apart ? 0 : now.fiber->warp->epoch};
  static const char *did[] = {"read", "wrote", "changed"}, *does[] = {"reads", "writes", "changes"};
  for (uintptr_t at = (uintptr_t)place / 2; at <= ((uintptr_t)place + size - 1) / 2; at++) {
    Shadow& s = shared ? shared_shadow[at - (uintptr_t)b->arena / 2] : device_shadow[at];
    for (int other = READS; other < DOINGS; other++) {
      if (other == doing && doing != WRITES) continue;
      const Seen* one = s.doers[other].beside(mine);
      if (one) fail("a race in %s memory: thread %d %s what thread %d %s", shared ? "shared" : "device", one->thread, did[other], mine.thread, does[doing]);
    }
    s.doers[doing].add(mine);
  }
}
void engine_touch(const void* place, int size, bool write) {
  if (!message[0]) look_for_races((const char*)place, size, write ? WRITES : READS);
}
void atomic_touch(const void* place, int size) {
  if (is_of_kernel((const char*)place)) look_for_races((const char*)place, size, CHANGES);
}
void touch(const void* place, int size, bool write, void* from) {
  Block* b = now.block;
  const char* at = (const char*)place;
  if (!is_of_kernel(at)) return;
  if (size <= 16 && (uintptr_t)at % size) fail("a misaligned address (%p) of %d bytes", place, size);
  bool shared = at >= b->arena && at < b->arena + ARENA;
  int thread = (int)(now.fiber - b->fibers), nth = times[{from, thread}]++;
  (shared ? shared_accesses : global_accesses)[{from, thread / 32, nth}].push_back({at, size});
  look_for_races(at, size, write ? WRITES : READS);
}

}  // namespace simt

#define SIMT_HOOK(SIZE)                                                                                                   \
  void __tsan_read##SIZE(void* p) { simt::touch(p, SIZE, false, __builtin_return_address(0)); }             \
  void __tsan_write##SIZE(void* p) { simt::touch(p, SIZE, true, __builtin_return_address(0)); }             \
  void __tsan_unaligned_read##SIZE(void* p) { simt::touch(p, SIZE, false, __builtin_return_address(0)); }   \
  void __tsan_unaligned_write##SIZE(void* p) { simt::touch(p, SIZE, true, __builtin_return_address(0)); }
extern "C" {
SIMT_HOOK(1) SIMT_HOOK(2) SIMT_HOOK(4) SIMT_HOOK(8) SIMT_HOOK(16)
void __tsan_read_range(void* p, unsigned long n) { simt::touch(p, (int)n, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, unsigned long n) { simt::touch(p, (int)n, true, __builtin_return_address(0)); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
SIMT_EXPORT void simt_counts(simt::Counts* found) {
  found[0] = simt::global_counts[0], found[1] = simt::global_counts[1], found[2] = simt::shared_counts;
  memset(simt::global_counts, 0, sizeof simt::global_counts), memset(&simt::shared_counts, 0, sizeof simt::shared_counts);
}
