#include "crew.h"

/* Polls before a thread goes to sleep: waiting is mostly shorter than waking. */
enum { MEETING_POLLS = 4000, JOB_POLLS = 20000 };

static struct {
  u32 threads;
  u32 failed;
  u32 stopped;
  struct program *program;
  _Alignas(64) u32 arrived;
  _Alignas(64) u32 phase;
  u32 phase_sleepers;
  _Alignas(64) u32 job;
  u32 job_sleepers;
} crew;

extern kernel *const kernels[];

u32 crew_size(void) { return crew.threads; }

static bool is_over(void) {
  return __atomic_load_n(&crew.failed, __ATOMIC_SEQ_CST) || __atomic_load_n(&crew.stopped, __ATOMIC_SEQ_CST);
}

/* Until `*word` is no longer `old`, or the crew failed or stopped. */
static void await_change(u32 *word, u32 old, u32 *sleepers, u32 polls) {
  for (u32 i = 0; i < polls; i++)
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) return;
  __atomic_fetch_add(sleepers, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == old && !is_over())
    __builtin_wasm_memory_atomic_wait32((int *)word, (int)old, -1);
  __atomic_fetch_sub(sleepers, 1, __ATOMIC_SEQ_CST);
}

static void advance(u32 *word, u32 *sleepers) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST)) __builtin_wasm_memory_atomic_notify((int *)word, ~0u);
}

bool meet(void) {
  if (crew.threads == 1) return true;
  u32 phase = __atomic_load_n(&crew.phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&crew.arrived, 1, __ATOMIC_ACQ_REL) == crew.threads) {
    __atomic_store_n(&crew.arrived, 0, __ATOMIC_RELAXED);
    advance(&crew.phase, &crew.phase_sleepers);
  } else {
    await_change(&crew.phase, phase, &crew.phase_sleepers, MEETING_POLLS);
  }
  return !__atomic_load_n(&crew.failed, __ATOMIC_RELAXED);
}

static void execute(struct program *program, u32 index) {
  struct worker me = {index, program->scratch + index * program->scratch_stride};
  for (u32 i = 0; i < program->count; i++) {
    struct instruction *in = &program->instructions[i];
    if (in->synchronise && !meet()) return;
    kernels[in->kernel](in, &me);
  }
  meet();
}

EXPORT(set_threads) void set_threads(u32 threads) { crew.threads = threads; }

/* Run a program with the whole crew, from the thread that leads it. False if a helper failed. */
EXPORT(run) u32 run(struct program *program) {
  for (u32 i = 0; i < program->count; i++) program->instructions[i].taken = 0;
  crew.program = program;
  if (crew.threads > 1) advance(&crew.job, &crew.job_sleepers);
  execute(program, 0);
  return !crew.failed;
}

/* A helper's life: take part in every run until `stop`. */
EXPORT(help) void help(u32 index) {
  for (u32 done = 0;; done++) {
    await_change(&crew.job, done, &crew.job_sleepers, JOB_POLLS);
    if (is_over()) return;
    execute(crew.program, index);
  }
}

/* Both words change, so that a thread about to sleep on one doesn't. */
static void wake_all(void) {
  advance(&crew.job, &crew.job_sleepers);
  advance(&crew.phase, &crew.phase_sleepers);
}

/* A thread trapped: let the others go. */
EXPORT(fail) void fail(void) {
  __atomic_store_n(&crew.failed, 1, __ATOMIC_SEQ_CST);
  wake_all();
}

EXPORT(stop) void stop(void) {
  __atomic_store_n(&crew.stopped, 1, __ATOMIC_SEQ_CST);
  wake_all();
}
