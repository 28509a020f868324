"""WebGPU outside the browser, through wgpu-native."""
