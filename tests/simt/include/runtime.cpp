// The scheduler behind simt.h: fibers of a block, what they wait for, and a grid's blocks one after the other.
#include "guarded.h"
#include "simt.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>

namespace simt {

Context now;
char message[MESSAGE];
size_t shared_limit = 99 << 10;
bool orders_device_apart;

namespace {
unsigned order = FORWARD;
uint64_t seed = 1;
sigjmp_buf fault_return;
const int MOST_SITES = 1024;
int mutated = -1, mutated_by = 0;
bool reached[MOST_SITES];
}  // namespace

bool kept(int site) { return off(site) == 0; }
int off(int site) {
  reached[site] = true;
  return site == mutated ? mutated_by : 0;
}

extern "C" void simt_switch(void** save, void* to);
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  pop %rcx
  jmp *%rcx
.size simt_switch,.-simt_switch
)");

[[noreturn]] void fail(const char* form, ...) {
  uint3 b = now.block_place, t = now.thread;
  int n = snprintf(message, MESSAGE, "block (%u,%u,%u) thread (%u,%u,%u): ", b.x, b.y, b.z, t.x, t.y, t.z);
  va_list arguments;
  va_start(arguments, form);
  vsnprintf(message + n, MESSAGE - n, form, arguments);
  void* ended;
  simt_switch(&ended, now.block->host);
  __builtin_unreachable();
}

static void go(Fiber* from, Fiber* to) {
  now.fiber = to;
  now.thread = to->place;
  simt_switch(&from->stack, to->stack);
  now.fiber = from;
  now.thread = from->place;
}

static unsigned draw(unsigned below) {
  seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
  return (unsigned)(seed >> 33) % below;
}
static int first_of(uint32_t lanes) {
  if (order == BACKWARD) return 31 - __builtin_clz(lanes);
  if (order == SHUFFLED) for (int skip = draw(__builtin_popcount(lanes)); skip; skip--) lanes &= lanes - 1;
  return __builtin_ctz(lanes);
}
// Who runs next: a lane of the same warp, else one of another.
static Fiber* next_fiber(Fiber* fiber) {
  Block* b = now.block;
  Warp* own = fiber->warp;
  if (own->ready && order != SHUFFLED) return own->lanes[first_of(own->ready)];
  int start = order == SHUFFLED ? draw(b->warp_count) : own->number;
  for (int k = 0; k < b->warp_count; k++) {
    int along = order == BACKWARD ? start - k + b->warp_count : start + k;
    Warp* w = &b->warps[along % b->warp_count];
    if (w->ready) return w->lanes[first_of(w->ready)];
  }
  return nullptr;
}

static void deadlock() {
  int at_block = 0, at_warp = 0, block_line = 0, warp_line = 0;
  for (int i = 0; i < now.block->threads; i++) {
    Fiber* f = &now.block->fibers[i];
    if (f->warp->paused & 1u << f->lane) fail("deadlock: threads wait at an mbarrier (line %d) that nobody completes", f->line);
  }
  for (int i = 0; i < now.block->threads; i++) {
    Fiber* f = &now.block->fibers[i];
    uint32_t bit = 1u << f->lane;
    if (f->warp->parked & bit) at_block++, block_line = f->line;
    if (f->warp->waiting & bit) at_warp++, warp_line = f->line;
  }
  fail("deadlock: %d threads at __syncthreads (line %d), %d at a warp's collective (line %d), %d ended", at_block,
       block_line, at_warp, warp_line, now.block->threads - now.block->alive);
}
static void yield_to_others(Fiber* fiber) {
  Fiber* next = next_fiber(fiber);
  if (!next) deadlock();
  if (next != fiber) go(fiber, next);
}

void pause(int line) {
  Fiber* f = now.fiber;
  f->line = line;
  f->warp->paused |= 1u << f->lane;
  f->warp->ready &= ~(1u << f->lane);
  yield_to_others(f);
}
void wake() {
  for (int i = 0; i < now.block->warp_count; i++) {
    Warp& w = now.block->warps[i];
    w.ready |= w.paused, w.paused = 0;
  }
}

void warp_sync(uint32_t mask, int operation, int line) {
  Fiber* f = now.fiber;
  Warp* w = f->warp;
  uint32_t bit = 1u << f->lane;
  if (!(mask & bit)) fail("line %d: a collective whose mask lacks the calling lane", line);
  uint32_t expected = mask & (w->ready | w->waiting | w->parked | w->alive);
  if ((mask & w->alive) != expected) fail("line %d: a collective of lanes that are not there", line);
  f->line = line, f->operation = operation, f->mask = mask;
  w->waiting |= bit;
  w->ready &= ~bit;
  uint32_t lanes = mask & w->alive;
  if ((w->waiting & lanes) == lanes) {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
      Fiber* g = w->lanes[__builtin_ctz(rest)];
      if (g->operation != operation || g->mask != mask || g->line != line || g->phase != f->phase)
        fail("divergent collective: lane %d at line %d, lane %d at line %d", f->lane, line, g->lane, g->line);
    }
    w->waiting &= ~lanes;
    w->ready |= lanes;
    // Of the collectives __syncwarp alone orders what lanes write and read.
    if (lanes == w->alive && operation == SYNCWARP) w->epoch++;
    if (order == FORWARD) return;
  }
  yield_to_others(f);
}

static void release_block() {
  Block* b = now.block;
  b->parked = 0;
  b->epoch++;
  if (b->orders_device) b->device_epoch = b->epoch, b->orders_device = false;
  for (int i = 0; i < b->warp_count; i++) {
    b->warps[i].ready |= b->warps[i].parked;
    b->warps[i].parked = 0;
  }
}
void block_sync(int line) {
  Fiber* f = now.fiber;
  Block* b = now.block;
  uint32_t bit = 1u << f->lane;
  f->line = line;
  if (b->alive != b->threads) fail("__syncthreads (line %d) after %d threads ended", line, b->threads - b->alive);
  f->warp->parked |= bit;
  f->warp->ready &= ~bit;
  if (++b->parked == b->alive) {
    for (int i = 0; i < b->threads; i++)
      if (b->fibers[i].line != line) fail("divergent __syncthreads: line %d and line %d", line, b->fibers[i].line);
    release_block();
    if (order == FORWARD) return;
  }
  yield_to_others(f);
}

static void finish() {
  Fiber* f = now.fiber;
  Block* b = now.block;
  Warp* w = f->warp;
  uint32_t bit = 1u << f->lane;
  check_waited(*f);
  if (b->parked) fail("a thread ends while %d wait at __syncthreads", b->parked);
  if (w->waiting) fail("a lane ends while others wait at a collective (line %d)", w->lanes[__builtin_ctz(w->waiting)]->line);
  w->ready &= ~bit;
  w->alive &= ~bit;
  void* ended;
  if (b->alive == 1) check_waited(*b);
  if (--b->alive) {
    Fiber* next = next_fiber(f);
    if (!next) deadlock();
    now.fiber = next;
    now.thread = next->place;
    simt_switch(&ended, next->stack);
  }
  simt_switch(&ended, b->host);
  __builtin_unreachable();
}
static void trampoline() {
  now.entry(now.argument);
  finish();
}

// Slots alternate, so that nobody overwrites what others still read.
uint64_t (*exchange(uint32_t mask, const void* value, size_t size, int operation, int line))[8] {
  Fiber* f = now.fiber;
  auto slots = f->warp->slots[f->phase++ & 1];
  memcpy(slots[f->lane], value, size);
  warp_sync(mask, operation, line);
  return slots;
}

static Block* the_block() {
  static Block* made = nullptr;
  if (!made) {
    made = new Block();
    made->stacks = (char*)mmap(nullptr, (size_t)MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    // Between pages that can't be touched.
    const size_t page = 4096;
    char* room = (char*)mmap(nullptr, ARENA + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    made->arena = room + page;
    mprotect(made->arena, ARENA, PROT_READ | PROT_WRITE);
    memset(made->arena, 0xff, ARENA);
  }
  return made;
}

// Of the block that is next.
static dim3 extent_here(dim3 extent, dim3 whole) {
  auto left = [](unsigned extent, unsigned whole, unsigned place) { return whole && whole - place * extent < extent ? whole - place * extent : extent; };
  uint3 at = now.block_place;
  return {left(extent.x, whole.x, at.x), left(extent.y, whole.y, at.y), left(extent.z, whole.z, at.z)};
}
static void set_up(Block* b, dim3 extent) {
  static uint64_t blocks = 0;
  now.block_extent = extent;
  b->threads = (int)(extent.x * extent.y * extent.z), b->warp_count = (b->threads + 31) / 32;
  b->number = ++blocks;
  b->barriers.clear(), b->used = 0, b->parked = 0, b->alive = b->threads, b->epoch = b->device_epoch = 0, b->orders_device = false;
  for (int w = 0; w < b->warp_count; w++) {
    Warp* warp = &b->warps[w];
    int there = b->threads - w * 32;
    warp->number = w, warp->waiting = warp->parked = warp->paused = 0, warp->epoch = 0;
    warp->alive = warp->ready = there >= 32 ? ~0u : (1u << there) - 1;
  }
  for (int t = 0; t < b->threads; t++) {
    Fiber* f = &b->fibers[t];
    f->warp = &b->warps[t >> 5], f->lane = t & 31, f->phase = 0, f->line = 0;
    f->warp->lanes[f->lane] = f;
    f->place = {t % extent.x, t / extent.x % extent.y, t / extent.x / extent.y};
    f->copies.clear(), f->products.clear(), f->fenced = false;
    // Stacks begin at other places of their pages: else all would share a few lines of the cache.
    char* top = b->stacks + (size_t)(t + 1) * STACK - (t * 320) % 16384 - 64;
    void** stack = (void**)((uintptr_t)top & ~15ul);
    *--stack = nullptr;
    *--stack = (void*)trampoline;
    stack -= 6;
    memset(stack, 0, 48);
    f->stack = stack;
  }
}

static void faulted(int, siginfo_t* what, void*) {
  uint3 b = now.block_place, t = now.thread;
  snprintf(message, MESSAGE, "block (%u,%u,%u) thread (%u,%u,%u): an illegal address (%p)", b.x, b.y, b.z, t.x, t.y, t.z, what->si_addr);
  siglongjmp(fault_return, 1);
}
// Faults of a kernel end its launch; everybody else's go where they went before. After it nothing is a thread's any more.
struct Guard {
  struct sigaction before[2];
  stack_t stack_before;
  Guard() {
    static char room[64 << 10];
    stack_t own = {room, 0, sizeof room};
    sigaltstack(&own, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
  }
  ~Guard() {
    now.fiber = nullptr;
    sigaction(SIGSEGV, &before[0], nullptr);
    sigaction(SIGBUS, &before[1], nullptr);
    sigaltstack(&stack_before, nullptr);
  }
};

int launch_entry(void (*entry)(void*), void* argument, dim3 grid, dim3 extent, size_t dynamic_size, dim3 whole) {
  Block* b = the_block();
  now = {{}, {}, extent, grid, nullptr, b, entry, argument};
  if (message[0]) {
    // The launch before failed in the midst of a block.
    memset(b->arena, 0xff, ARENA);
    block_ended();
  }
  message[0] = 0;
  uint64_t threads = (uint64_t)extent.x * extent.y * extent.z, blocks = (uint64_t)grid.x * grid.y * grid.z;
  if (threads < 1 || threads > MOST_THREADS || !blocks || grid.y > 65535 || grid.z > 65535 || dynamic_size > shared_limit) {
    snprintf(message, MESSAGE, "a grid of (%u,%u,%u) blocks of %llu threads with %zu bytes", grid.x, grid.y, grid.z,
             (unsigned long long)threads, dynamic_size);
    return 1;
  }
  b->dynamic_size = dynamic_size, b->most_used = 0;
  b->dynamic = b->arena + ARENA - ((dynamic_size + 255) & ~255ul);
  Guard guard;
  if (sigsetjmp(fault_return, 1)) return 1;
  for (uint64_t i = 0; i < blocks; i++) {
    uint64_t at = order == BACKWARD ? blocks - 1 - i : i;
    now.block_place = {(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)};
    set_up(b, extent_here(extent, whole));
    Fiber* first = &b->fibers[order == BACKWARD ? b->threads - 1 : 0];
    now.fiber = first;
    now.thread = first->place;
    simt_switch(&b->host, first->stack);
    if (message[0]) return 1;
    memset(b->arena, 0xff, b->most_used);
    memset(b->dynamic, 0xff, dynamic_size);
    block_ended();
  }
  return 0;
}

}  // namespace simt

SIMT_EXPORT const char* simt_message() { return simt::message; }
SIMT_EXPORT void simt_order(unsigned order, unsigned long long seed) { simt::order = order, simt::seed = seed * 2 + 1; }
// Until it is told otherwise, `site` has no barrier, or a bound that is off by so much.
SIMT_EXPORT void simt_mutate(int site, int by) { simt::mutated = site, simt::mutated_by = by; }
// Adds the sites that launches came to since it was last asked.
SIMT_EXPORT void simt_reached(bool* found, int count) {
  for (int i = 0; i < count && i < simt::MOST_SITES; i++) found[i] = found[i] || simt::reached[i], simt::reached[i] = false;
}
SIMT_EXPORT void simt_shared(size_t limit) { simt::shared_limit = limit; }
// For launches without a driver: memory like that of driver.cpp.
SIMT_EXPORT void simt_allocate(size_t nbytes, size_t alignment, Guarded* found) { *found = guarded(nbytes, alignment); }
SIMT_EXPORT void simt_free(const Guarded* given) { munmap(given->base, given->room); }
