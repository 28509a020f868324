"""Epilogues: by NumPy where the device is the processor, by kernels on a GPU."""
