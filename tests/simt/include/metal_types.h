// Names of Metal's language that have one meaning for the emulator and for the check of address spaces.
#pragma once
typedef unsigned char uchar, uint8_t;
typedef unsigned short ushort, uint16_t;
typedef unsigned int uint, uint32_t;
typedef unsigned long ulong;
typedef int int32_t;
typedef _Float16 half, float16_t;

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags x, mem_flags y) { return mem_flags((int)x | (int)y); }
enum memory_order { memory_order_relaxed };
// Reads and writes of it have names, and no others do.
enum class atomic_uint : uint {};
