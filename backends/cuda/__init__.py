"""CUDA through NVIDIA's driver API."""
