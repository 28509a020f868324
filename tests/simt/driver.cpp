// Stands in for libcuda: the part of the driver API that the backend calls, over kernels that simt.h runs on the CPU. A
// "cubin" is such a kernel library. Everything is done when it is enqueued, in order; what is captured, when it is launched.
// Allocations end at a page that can't be touched and begin as NaNs. An error of a kernel sticks to its device, as on a card.
// What belongs to a device is refused while another one's context is the thread's; so is, while a thread captures, what might wait.
#include <dlfcn.h>

#include "include/guarded.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum Status {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, UNAVAILABLE = 46, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NO_BINARY = 209,
  NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719, CAPTURING = 900,
};
struct Extent { unsigned x, y, z; };
using Launch = int (*)(void**, Extent, Extent, size_t);

struct Device { int broken = SUCCESS, retained = 0; size_t used = 0; int architecture = 0, mode = 0, held = 0; };
struct Function {
  Device* device;
  Launch launch;
  int count, sizes[64];
  const char* (*message)();
  void (*schedule)(unsigned, unsigned long long);
  void (*limit)(size_t);
  void (*mutate)(int, int);
  void (*reached)(bool*, int);
  size_t dynamic = 48 << 10;  // shared memory that a launch may ask for
  void (*counts)(uint64_t*);  // of a traced library, else null
  std::string name;
};
struct Module { Device* device; void* library; std::map<std::string, std::unique_ptr<Function>> functions; };
using Work = std::function<int()>;
struct Graph { std::vector<Work> nodes; };
struct Stream { Device* device; std::unique_ptr<Graph> captured; };
struct Event { Device* device; int looks; };
struct Mapping { Device* device; void* base; size_t nbytes, asked; };

std::recursive_mutex lock;
const int MOST_DEVICES = 4;
Device devices[MOST_DEVICES];
thread_local Device* current = nullptr;
thread_local int capturing = 0;  // streams whose capture this thread has begun
std::map<std::string, int> failing;  // calls that return these statuses, once
std::string told = "no error";
size_t memory = 4ull << 30, others = 0;
int version = 13000, architecture = 86, count_of_devices = 1, lag = 0;
// A block's shared memory at most: 64, 99 or 227 KiB.
size_t shared_limit() { return (architecture < 80 ? 64ul : architecture == 90 ? 227ul : 99ul) << 10; }
std::map<std::string, uint64_t> calls;
unsigned order = 0;
unsigned long long seed = 0;
int mutated = -1, mutated_by = 0;
const int MOST_SITES = 1024;
bool reached[MOST_SITES];
const int COUNTS = 15;
std::map<std::string, std::vector<uint64_t>> counted;  // by kernel, what traced launches did
std::map<uint64_t, Mapping> mappings;

// What stops a call on something of a device: that the thread isn't in its context, or an error that stuck.
int refused(Device* device) { return !device || device != current ? (int)INVALID_CONTEXT : device->broken; }

int enqueue(void* given, Work work) {
  auto* stream = static_cast<Stream*>(given);
  if (int status = refused(stream->device)) return status;
  if (stream->captured) return stream->captured->nodes.push_back(std::move(work)), SUCCESS;
  return stream->device->broken = work();
}
int waited(void* given) {
  auto* stream = static_cast<Stream*>(given);
  if (int status = refused(stream->device)) return status;
  return stream->captured ? CAPTURING : SUCCESS;
}

// Of device memory, by an allocation: from 1 MiB on whole pages of 2 MiB.
size_t taken(size_t nbytes) { return nbytes < (1 << 20) ? nbytes : (nbytes + (2 << 20) - 1) >> 21 << 21; }

int told_to_fail(const char* name) {
  auto found = failing.find(name);
  if (found == failing.end()) return SUCCESS;
  int status = found->second;
  return failing.erase(found), status;
}

}  // namespace

#define ENTER \
  std::lock_guard<std::recursive_mutex> held(lock); \
  calls[__func__]++; \
  if (int status = told_to_fail(__func__)) return status
// What a driver refuses a thread whose capture keeps to the thread: it might wait for the device.
#define ENTER_OUTSIDE_CAPTURES ENTER; if (capturing) return CAPTURING

extern "C" {

// For tests: what there seems to be, and what was called.
void simt_driver(int driver_version, size_t total) { version = driver_version, memory = total; }
void simt_architecture(int seen) { architecture = seen; }
void simt_devices(int count) { count_of_devices = count; }
// One device's own compute capability, times ten, or 0 for that of all; its compute mode; and whether another process holds it.
void simt_card(int device, int seen, int mode, int held) {
  devices[device].architecture = seen, devices[device].mode = mode, devices[device].held = held;
}
void simt_others(size_t nbytes) { others = nbytes; }   // of each device's memory, in use by other processes
void simt_lag(int looks) { lag = looks; }              // how often an event isn't reached yet when it is looked at
void simt_fail(const char* name, int status) { failing[name] = status; }  // the next call
uint64_t simt_calls(const char* name) { return calls[name]; }
void simt_schedule(unsigned new_order, unsigned long long new_seed) { order = new_order, seed = new_seed; }
// Launches are without a barrier, or with a bound that is off by so much (tests/simt/mutants.py); -1 for none.
void simt_mutated(int site, int by) { mutated = site, mutated_by = by; }
// Whether launches came to this site.
bool simt_came_to(int site) { return reached[site]; }
void simt_forget() { memset(reached, 0, sizeof reached); }
void simt_counted(const char* kernel, uint64_t* found) {
  auto& all = counted[kernel];
  all.resize(COUNTS);
  for (int i = 0; i < COUNTS; i++) found[i] = all[i];
}
void simt_break(int status, int device) { devices[device].broken = status, told = "told to break"; }

int cuInit(unsigned) { ENTER; return SUCCESS; }
int cuDriverGetVersion(int* found) { *found = version; return SUCCESS; }
int cuDeviceGetCount(int* count) { *count = count_of_devices; return SUCCESS; }
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0 <= ordinal && ordinal < count_of_devices ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char* name, int room, int) { snprintf(name, room, "SIMT CPU emulation"); return SUCCESS; }
int cuDeviceGetPCIBusId(char* name, int room, int device) { snprintf(name, room, "0000:%02X:00.0", 10 + device); return SUCCESS; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  int architecture = devices[device].architecture ? devices[device].architecture : ::architecture;
  const std::map<int, int> known = {{1, 1024}, {8, 49152}, {10, 32}, {16, 4}, {20, devices[device].mode}, {39, 1536},
      {75, architecture / 10}, {76, architecture % 10}, {97, (int)shared_limit()}, {134, -1}};
  auto found = known.find(attribute);
  *value = found == known.end() ? 0 : found->second;
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** made, int device) {
  ENTER;
  if (devices[device].held || devices[device].mode == 2) return UNAVAILABLE;
  devices[device].retained++, *made = &devices[device];
  return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) { ENTER; devices[device].retained--; return SUCCESS; }
int cuCtxSetCurrent(void* context) { current = static_cast<Device*>(context); return SUCCESS; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  ENTER;
  if (!current) return INVALID_CONTEXT;
  *free_bytes = memory - others - current->used, *total = memory;
  return current->broken;
}

int cuMemAlloc_v2(uint64_t* place, size_t nbytes) {
  ENTER_OUTSIDE_CAPTURES;
  if (int status = refused(current)) return status;
  if (nbytes == 0) return INVALID_VALUE;
  if (current->used + others + taken(nbytes) > memory) return OUT_OF_MEMORY;
  Guarded made = guarded(nbytes, 256);
  if (!made.place) return OUT_OF_MEMORY;
  *place = (uint64_t)made.place;
  mappings[*place] = {current, made.base, made.room, nbytes};
  current->used += taken(nbytes);
  return SUCCESS;
}
int cuMemFree_v2(uint64_t place) {
  ENTER_OUTSIDE_CAPTURES;
  auto found = mappings.find(place);
  if (found == mappings.end()) return INVALID_VALUE;
  if (found->second.device != current) return INVALID_CONTEXT;
  munmap(found->second.base, found->second.nbytes);
  current->used -= taken(found->second.asked);
  mappings.erase(found);
  return SUCCESS;
}
int cuMemHostAlloc(void** place, size_t nbytes, unsigned) { ENTER_OUTSIDE_CAPTURES; *place = aligned_alloc(4096, (nbytes + 4095) & ~4095ul); return refused(current); }
int cuMemFreeHost(void* place) { ENTER_OUTSIDE_CAPTURES; free(place); return SUCCESS; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void* stream) {
  ENTER;
  return enqueue(stream, [=] { memcpy((void*)to, from, n); return SUCCESS; });
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, void* stream) {
  ENTER;
  return enqueue(stream, [=] { memcpy(to, (void*)from, n); return SUCCESS; });
}
int cuMemsetD8Async(uint64_t place, unsigned char value, size_t n, void* stream) {
  ENTER;
  return enqueue(stream, [=] { memset((void*)place, value, n); return SUCCESS; });
}

int cuStreamCreate(void** made, unsigned) { ENTER; *made = new Stream{current, nullptr}; return refused(current); }
int cuStreamDestroy_v2(void* stream) { ENTER; delete static_cast<Stream*>(stream); return SUCCESS; }
int cuStreamSynchronize(void* stream) { ENTER; return waited(stream); }
int cuStreamBeginCapture_v2(void* stream, int) {
  ENTER;
  static_cast<Stream*>(stream)->captured = std::make_unique<Graph>();
  capturing++;
  return refused(static_cast<Stream*>(stream)->device);
}
int cuStreamEndCapture(void* stream, void** made) {
  ENTER;
  *made = static_cast<Stream*>(stream)->captured.release();
  capturing--;
  return refused(static_cast<Stream*>(stream)->device);
}
int cuGraphInstantiateWithFlags(void** made, void* graph, unsigned long long) { ENTER; *made = new Graph(*(Graph*)graph); return refused(current); }
int cuGraphLaunch(void* graph, void* stream) {
  ENTER;
  return enqueue(stream, [=] {
    for (auto& node : static_cast<Graph*>(graph)->nodes)
      if (int status = node()) return status;
    return (int)SUCCESS;
  });
}
int cuGraphDestroy(void* graph) { ENTER; delete static_cast<Graph*>(graph); return SUCCESS; }
int cuGraphExecDestroy(void* graph) { ENTER; delete static_cast<Graph*>(graph); return SUCCESS; }

int cuEventCreate(void** made, unsigned) { ENTER; *made = new Event{current, 0}; return refused(current); }
int cuEventRecord(void* event, void* stream) {
  ENTER;
  static_cast<Event*>(event)->looks = lag;
  auto* device = static_cast<Stream*>(stream)->device;
  return static_cast<Event*>(event)->device == device ? refused(device) : INVALID_CONTEXT;
}
int cuEventQuery(void* event) {
  ENTER_OUTSIDE_CAPTURES;
  if (int status = refused(static_cast<Event*>(event)->device)) return status;
  return static_cast<Event*>(event)->looks-- > 0 ? NOT_READY : SUCCESS;
}
int cuEventDestroy_v2(void* event) { ENTER; delete static_cast<Event*>(event); return SUCCESS; }

int cuModuleLoadData(void** made, const void* image) {
  ENTER_OUTSIDE_CAPTURES;
  const char* bytes = static_cast<const char*>(image);
  uint16_t machine, section_size, sections;
  uint64_t table;
  memcpy(&machine, bytes + 18, 2), memcpy(&section_size, bytes + 58, 2), memcpy(&sections, bytes + 60, 2);
  memcpy(&table, bytes + 40, 8);
  if (memcmp(bytes, "\x7f" "ELF", 4) || machine != 62) return NO_BINARY;  // a cubin is for a card
  char path[] = P_tmpdir "/simt-XXXXXX";
  int file = mkstemp(path);
  size_t n = table + (size_t)section_size * sections;
  bool written = write(file, bytes, n) == (ssize_t)n;
  close(file);
  void* library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (!library) return told = dlerror(), NO_BINARY;
  *made = new Module{current, library, {}};
  return refused(current);
}
int cuModuleUnload(void* module) { ENTER_OUTSIDE_CAPTURES; delete static_cast<Module*>(module); return SUCCESS; }
int cuModuleGetFunction(void** found, void* module, const char* name) {
  ENTER;
  auto* owner = static_cast<Module*>(module);
  auto& function = owner->functions[name];
  if (!function) {
    auto symbol = [&](const std::string& kind) { return dlsym(owner->library, (kind + name).c_str()); };
    auto launch = (Launch)symbol("simt_launch_");
    auto sizes = (int (*)(int*, int))symbol("simt_sizes_");
    if (!launch || !sizes) return told = std::string("no kernel ") + name, NOT_FOUND;
    function = std::make_unique<Function>();
    function->device = owner->device;
    function->launch = launch;
    function->count = sizes(function->sizes, 64);
    function->message = (const char* (*)())dlsym(owner->library, "simt_message");
    function->schedule = (void (*)(unsigned, unsigned long long))dlsym(owner->library, "simt_order");
    function->limit = (void (*)(size_t))dlsym(owner->library, "simt_shared");
    function->mutate = (void (*)(int, int))dlsym(owner->library, "simt_mutate");
    function->reached = (void (*)(bool*, int))dlsym(owner->library, "simt_reached");
    function->counts = (void (*)(uint64_t*))dlsym(owner->library, "simt_counts");
    function->name = name;
  }
  *found = function.get();
  return SUCCESS;
}
int cuFuncSetAttribute(void* given, int attribute, int value) {
  ENTER;
  if (attribute != 8 || (size_t)value > shared_limit()) return INVALID_VALUE;
  static_cast<Function*>(given)->dynamic = value;
  return refused(current);
}
// As simt.h reads it: the manual's rules for boxes of halves that are swizzled by 128 bytes.
int cuTensorMapEncodeTiled(void* map, unsigned type, unsigned rank, void* address, const uint64_t* extents, const uint64_t* strides,
                           const uint32_t* box, const uint32_t* steps, unsigned interleave, unsigned swizzle, unsigned, unsigned fill) {
  ENTER;
  bool fine = (uintptr_t)map % 64 == 0 && type == 6 && rank == 3 && (uintptr_t)address % 16 == 0 && !interleave && swizzle == 3 && !fill;
  fine = fine && box[0] * 2 == 128 && strides[0] % 16 == 0 && strides[1] % 16 == 0 && strides[0] >= 2 * extents[0];
  for (int i = 0; i < 3; i++) fine = fine && extents[i] && box[i] && box[i] <= 256 && steps[i] == 1;
  if (!fine) return INVALID_VALUE;
  uint64_t words[16] = {(uint64_t)address, extents[0], extents[1], extents[2], strides[0], strides[1]};
  uint32_t small[4] = {box[0], box[1], box[2], swizzle};
  memcpy(words + 6, small, sizeof small);
  memcpy(map, words, sizeof words);
  return refused(current);
}
int cuLaunchKernel(void* given, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** arguments, void**) {
  ENTER;
  auto* function = static_cast<Function*>(given);
  if (shared > function->dynamic) return INVALID_VALUE;
  if (function->device != static_cast<Stream*>(stream)->device) return INVALID_CONTEXT;
  std::vector<std::vector<char>> values;
  for (int i = 0; i < function->count; i++)
    values.emplace_back((char*)arguments[i], (char*)arguments[i] + function->sizes[i]);
  return enqueue(stream, [=]() mutable {
    std::vector<void*> places;
    for (auto& value : values) places.push_back(value.data());
    function->schedule(order, seed);
    function->limit(shared_limit());
    function->mutate(mutated, mutated_by);
    int failed = function->launch(places.data(), {gx, gy, gz}, {bx, by, bz}, shared);
    function->reached(reached, MOST_SITES);
    if (function->counts) {
      uint64_t found[COUNTS];
      function->counts(found);
      auto& all = counted[function->name];
      all.resize(COUNTS);
      for (int i = 0; i < COUNTS; i++) all[i] += found[i];
    }
    if (!failed) return (int)SUCCESS;
    told = function->message();
    return (int)(told.find("illegal address") == std::string::npos ? LAUNCH_FAILED : ILLEGAL_ADDRESS);
  });
}

int cuGetErrorName(int status, const char** name) {
  const std::map<int, const char*> known = {{0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  auto found = known.find(status);
  *name = found == known.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return SUCCESS;
}
int cuGetErrorString(int, const char** text) { *text = told.c_str(); return SUCCESS; }

}
