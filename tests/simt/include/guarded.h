// Memory whose end is a page's end: what lies past it can't be touched, and ends a launch.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

struct Guarded { char* place; void* base; size_t room; };

// As bytes of ones, but for what is too large to be filled. Null where there is no memory.
inline Guarded guarded(size_t nbytes, size_t alignment) {
  size_t page = sysconf(_SC_PAGESIZE), whole = (nbytes + alignment - 1) / alignment * alignment, pages = (whole + page - 1) / page * page;
  char* base = (char*)mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return {nullptr, nullptr, 0};
  mprotect(base + pages, page, PROT_NONE);
  char* place = base + pages - whole;
  if (nbytes <= 64 << 20) memset(place, 0xff, nbytes);
  return {place, base, pages + page};
}
