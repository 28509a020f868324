"""wasmtime's C API where its Python package ends: fast values, host functions that may sleep, guests as fibers."""
