"""What kernels move and compute: on paper, by data sheets of devices, and on the emulator, which counts it."""
