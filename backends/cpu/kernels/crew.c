#include "crew.h"

/* Looks at a word before a thread goes to sleep: waiting is mostly shorter than waking. */
enum { UNIT_POLLS = 4000, JOB_POLLS = 20000 };

static struct {
  u32 threads;
  u32 failed;
  u32 stopped;
  struct program *program;
  _Alignas(64) u32 pulse; /* changes when somebody may wait for what happened */
  u32 sleepers;
  _Alignas(64) u32 job; /* runs begun */
  u32 job_sleepers;
  _Alignas(64) u32 open;   /* the job that may be joined, or 0 */
  u32 inside; /* helpers in it */
} crew;

extern kernel *const kernels[];

u32 crew_size(void) { return crew.threads; }

static bool is_over(void) {
  return __atomic_load_n(&crew.failed, __ATOMIC_SEQ_CST) || __atomic_load_n(&crew.stopped, __ATOMIC_SEQ_CST);
}

static void wake(u32 *word, u32 *sleepers) {
  if (!__atomic_load_n(sleepers, __ATOMIC_SEQ_CST)) return;
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  __builtin_wasm_memory_atomic_notify((int *)word, ~0u);
}

void finish_units(struct instruction *in, u32 count) {
  __atomic_fetch_add(&in->done, count, __ATOMIC_SEQ_CST);
  wake(&crew.pulse, &crew.sleepers);
}

/* Wait until `*word` is `wanted`. Whoever changes it calls `wake` afterwards: a sleeper has counted itself and read the pulse
 * before it looks at the word for the last time, so it misses nothing. */
static void await_value(const u32 *word, u32 wanted) {
  for (u32 i = 0; i < UNIT_POLLS; i++)
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == wanted) return;
  __atomic_fetch_add(&crew.sleepers, 1, __ATOMIC_SEQ_CST);
  for (;;) {
    u32 pulse = __atomic_load_n(&crew.pulse, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == wanted || is_over()) break;
    __builtin_wasm_memory_atomic_wait32((int *)&crew.pulse, (int)pulse, -1);
  }
  __atomic_fetch_sub(&crew.sleepers, 1, __ATOMIC_SEQ_CST);
}

/* Wait until the instructions from `first` to before `end` are complete. False if the crew is over. */
static bool complete(struct program *program, u32 first, u32 end) {
  for (u32 i = first; i < end; i++) {
    struct instruction *in = &program->instructions[i];
    await_value(&in->done, __atomic_load_n(&in->total, __ATOMIC_RELAXED));
  }
  return !is_over();
}

static void execute(struct program *program, u32 index) {
  struct worker me = {index, program->scratch + index * program->scratch_stride};
  u32 first = 0;
  for (u32 i = 0; i < program->count; i++) {
    struct instruction *in = &program->instructions[i];
    if (in->synchronise) {
      if (!complete(program, first, i)) return;
      first = i;
    }
    kernels[in->kernel](in, &me);
  }
  complete(program, first, program->count);
}

EXPORT(set_threads) void set_threads(u32 threads) { crew.threads = threads; }

/* Run a program with whoever of the crew comes, from the thread that leads it. False if a helper failed. */
EXPORT(run) u32 run(struct program *program) {
  for (u32 i = 0; i < program->count; i++) program->instructions[i].taken = program->instructions[i].done = 0;
  crew.program = program;
  if (crew.threads > 1) {
    __atomic_store_n(&crew.open, crew.job + 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&crew.job, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&crew.job_sleepers, __ATOMIC_SEQ_CST))
      __builtin_wasm_memory_atomic_notify((int *)&crew.job, ~0u);
  }
  execute(program, 0);
  /* Nobody joins from here on; those who did must have left before anything of the program may change. */
  __atomic_store_n(&crew.open, 0, __ATOMIC_SEQ_CST);
  await_value(&crew.inside, 0);
  return !__atomic_load_n(&crew.failed, __ATOMIC_SEQ_CST);
}

static u32 await_job(u32 done) {
  u32 job;
  for (u32 i = 0; i < JOB_POLLS; i++)
    if ((job = __atomic_load_n(&crew.job, __ATOMIC_ACQUIRE)) != done) return job;
  __atomic_fetch_add(&crew.job_sleepers, 1, __ATOMIC_SEQ_CST);
  while ((job = __atomic_load_n(&crew.job, __ATOMIC_SEQ_CST)) == done)
    __builtin_wasm_memory_atomic_wait32((int *)&crew.job, (int)done, -1);
  __atomic_fetch_sub(&crew.job_sleepers, 1, __ATOMIC_SEQ_CST);
  return job;
}

/* A helper's life: take part in runs until the crew is over. */
EXPORT(help) void help(u32 index) {
  for (u32 job = 0;;) {
    job = await_job(job);
    if (is_over()) return;
    __atomic_fetch_add(&crew.inside, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&crew.open, __ATOMIC_SEQ_CST) == job) execute(crew.program, index);
    __atomic_fetch_sub(&crew.inside, 1, __ATOMIC_SEQ_CST);
    wake(&crew.pulse, &crew.sleepers);
  }
}

/* Both words change, so that a thread about to sleep on one doesn't. */
static void wake_all(void) {
  __atomic_fetch_add(&crew.job, 1, __ATOMIC_SEQ_CST);
  __builtin_wasm_memory_atomic_notify((int *)&crew.job, ~0u);
  __atomic_fetch_add(&crew.pulse, 1, __ATOMIC_SEQ_CST);
  __builtin_wasm_memory_atomic_notify((int *)&crew.pulse, ~0u);
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
