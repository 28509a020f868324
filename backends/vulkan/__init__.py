"""Vulkan compute, through the loader and a driver of the machine."""
