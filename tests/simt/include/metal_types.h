// Names of Metal's language that have one meaning for the emulator and for the check of address spaces.
#pragma once
typedef unsigned char uchar, uint8_t;
typedef unsigned short ushort, uint16_t;
typedef unsigned int uint, uint32_t;
typedef int int32_t;
typedef _Float16 half, float16_t;

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
