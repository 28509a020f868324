/* The threads that run a program together, and how they share an instruction's work.
 *
 * Each thread is an instance of this module over one shared memory, and walks the whole program. The work of an
 * instruction is cut into units; whoever is free takes the next few. Where an instruction needs what earlier ones wrote,
 * threads wait until those are complete, and not for each other: a thread that isn't running holds nobody up unless it was
 * stopped inside a unit. Which thread computes a unit never changes its result. */
#pragma once
#include "base.h"

struct instruction {
  u32 kernel;
  u32 synchronise; /* wait until what came before is complete */
  u32 taken;       /* units handed out */
  u32 done;        /* units finished */
  u32 total;       /* units there are; known once a thread came by */
  u32 arguments[27];
};

struct program {
  u32 count;
  u8 *scratch; /* each thread has its own part */
  u32 scratch_stride;
  u32 spare[29];
  struct instruction instructions[];
};

struct worker {
  u32 index;
  u8 *scratch;
};

/* What a thread has taken. Begin with none. */
struct units {
  u32 begin, end;
};

u32 crew_size(void);

/* Tell the others that units were finished. */
void finish_units(struct instruction *in, u32 count);

/* Chunks of at least `least` units such that each thread gets a few. */
INLINE u32 chunk_for(u32 units, u32 least) { return max_u32(least, divide_up(units, 4 * crew_size())); }

/* What was taken before is finished; take the next `chunk` of `total` units. Call it until it is false. `total` must follow from
 * the step and the arguments: a thread may come by when the instruction is complete, and temporaries hold something else. */
INLINE bool take(struct instruction *in, u32 total, u32 chunk, struct units *got) {
  if (got->end > got->begin) finish_units(in, got->end - got->begin);
  __atomic_store_n(&in->total, total, __ATOMIC_RELAXED);
  *got = (struct units){0, 0};
  if (__atomic_load_n(&in->taken, __ATOMIC_RELAXED) >= total) return false;
  u32 begin = __atomic_fetch_add(&in->taken, chunk, __ATOMIC_RELAXED);
  if (begin >= total) return false;
  *got = (struct units){begin, min_u32(begin + chunk, total)};
  return true;
}

typedef void kernel(struct instruction *in, struct worker *me);
