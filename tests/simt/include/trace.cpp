// A traced build is compiled as for ThreadSanitizer, whose library this replaces: every load and store comes here. In
// shared memory it finds races and counts bank conflicts, in global memory the sectors that each warp's accesses touch, and, where
// barriers don't order it by themselves, what is read or written again with none that does between.
#include "simt.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace simt {

struct Seen { int thread; uint64_t epoch, warp_epoch; };  // the epoch counts barriers of all blocks; 0 is never
struct Shadow { Seen writer, reader; bool many_readers; };
static Shadow shadow[ARENA / 2];  // of each half word
static uint64_t shared_epoch = 1;

// Who wrote a word of device memory in this block, and in which epoch of it.
static std::unordered_map<uintptr_t, std::pair<int, uint64_t>> device_writers;

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

void block_ended() {
  shared_epoch += 1 << 20;
  for (auto& [key, lanes] : global_accesses) {
    std::vector<uintptr_t> sectors;
    size_t bytes = 0;
    for (auto& a : lanes) {
      bytes += a.size;
      for (uintptr_t s = (uintptr_t)a.place / 32; s <= ((uintptr_t)a.place + a.size - 1) / 32; s++) sectors.push_back(s);
    }
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
  global_accesses.clear(), shared_accesses.clear(), times.clear(), device_writers.clear();
}

static bool apart(const Seen& before, int thread, uint64_t epoch) {
  if (!before.epoch || before.thread == thread || before.epoch != epoch) return true;
  bool same_warp = before.thread / 32 == thread / 32;
  return same_warp && before.warp_epoch < now.fiber->warp->epoch;
}
static void touch_shared(char* place, int size, bool write) {
  Block* b = now.block;
  int thread = (int)(now.fiber - b->fibers);
  uint64_t epoch = shared_epoch + b->epoch;
  Seen mine = {thread, epoch, now.fiber->warp->epoch};
  for (char* at = place; at < place + size; at += 2) {
    Shadow& s = shadow[(at - b->arena) / 2];
    if (!apart(s.writer, thread, epoch)) fail("a race in shared memory: thread %d wrote what thread %d %s", s.writer.thread, thread, write ? "writes" : "reads");
    if (!write) {
      s.many_readers = s.reader.epoch == epoch && (s.many_readers || s.reader.thread / 32 != thread / 32);
      if (s.reader.epoch != epoch || s.reader.warp_epoch <= mine.warp_epoch || s.many_readers) s.reader = mine;
      continue;
    }
    bool read_here = s.reader.epoch == epoch && s.many_readers;
    if (read_here || !apart(s.reader, thread, epoch)) fail("a race in shared memory: thread %d writes what thread %d read", thread, s.reader.thread);
    s.writer = mine;
  }
}
static void touch_device(char* place, int size, bool write) {
  int thread = (int)(now.fiber - now.block->fibers);
  uint64_t epoch = now.block->device_epoch;
  for (uintptr_t word = (uintptr_t)place / 4; word <= ((uintptr_t)place + size - 1) / 4; word++) {
    auto found = device_writers.find(word);
    if (found != device_writers.end() && found->second.first != thread && found->second.second == epoch)
      fail("a race in device memory: thread %d wrote what thread %d %s", found->second.first, thread, write ? "writes" : "reads");
    if (write) device_writers[word] = {thread, epoch};
  }
}
void engine_touch(const void* place, int size, bool write) {
  if (!message[0]) touch_shared((char*)place, size, write);
}
void touch(const void* place, int size, bool write, void* from) {
  Block* b = now.block;
  char* at = (char*)place;
  if (!now.fiber || message[0]) return;
  if (at >= b->stacks && at < b->stacks + (size_t)MOST_THREADS * STACK) return;
  if (at >= (char*)&now && at < (char*)(&now + 1)) return;
  if (at >= (char*)b && at < (char*)(b + 1)) return;
  bool shared = at >= b->arena && at < b->arena + ARENA;
  int thread = (int)(now.fiber - b->fibers), nth = times[{from, thread}]++;
  (shared ? shared_accesses : global_accesses)[{from, thread / 32, nth}].push_back({at, size});
  if (shared) touch_shared(at, size, write);
  else if (orders_device_apart) touch_device(at, size, write);
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
