/* The threads that run a program together, and how they share an instruction's work.
 *
 * Each thread is an instance of this module over one shared memory. Every thread walks the whole program. The work of an
 * instruction is cut into units; whoever is free takes the next few, so a thread that was descheduled delays nobody. Which
 * thread computes a unit never changes its result. */
#pragma once
#include "base.h"

struct instruction {
  u32 kernel;
  u32 synchronise; /* wait for all threads to finish what came before */
  u32 taken;       /* units handed out so far */
  u32 spare;
  u32 arguments[28];
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

struct units {
  u32 begin, end;
};

/* Wait for all threads. False if one of them failed: leave the program. */
bool meet(void);
u32 crew_size(void);

/* Chunks of at least `least` units such that each thread gets a few. */
INLINE u32 chunk_for(u32 units, u32 least) { return max_u32(least, divide_up(units, 4 * crew_size())); }

/* Take the next `chunk` of `total` units. */
INLINE bool take(struct instruction *in, u32 total, u32 chunk, struct units *got) {
  if (__atomic_load_n(&in->taken, __ATOMIC_RELAXED) >= total) return false;
  u32 begin = __atomic_fetch_add(&in->taken, chunk, __ATOMIC_RELAXED);
  if (begin >= total) return false;
  *got = (struct units){begin, min_u32(begin + chunk, total)};
  return true;
}

typedef void kernel(struct instruction *in, struct worker *me);
