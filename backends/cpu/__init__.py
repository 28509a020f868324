"""The cpu backend: our kernels in WebAssembly SIMD, run by wasmtime on all cores (docs/decisions/005)."""
