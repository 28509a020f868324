// What Tint says of shaders: {code, layout: [[binding, kind], …], whole}. `whole` asks for a pipeline, too. All have
// parameters at binding 0 of group 1, at a dynamic offset. Runs in a page, and in Node on Dawn's bindings.
const FEATURES = ["subgroups", "shader-f16"];
const LIMITS = ["maxBufferSize", "maxStorageBufferBindingSize"];
const AT_ONCE = 64;

async function opened(gpu) {
  const adapter = await gpu?.requestAdapter();
  if (!adapter) throw new Error("no adapter");
  const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
  return [adapter, await adapter.requestDevice({ requiredFeatures, requiredLimits })];
}

async function errorsOf(device, params, shader) {
  const module = device.createShaderModule({ code: shader.code });
  const { messages } = await module.getCompilationInfo();
  const errors = messages.filter((m) => m.type === "error").map((m) => `line ${m.lineNum}: ${m.message}`);
  if (errors.length || !shader.whole) return errors;
  const visibility = GPUShaderStage.COMPUTE;
  const entries = shader.layout.map(([binding, type]) => ({ binding, visibility, buffer: { type } }));
  const layout = device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries }), params] });
  try {
    await device.createComputePipelineAsync({ layout, compute: { module, entryPoint: "main" } });
  } catch (error) {
    errors.push(error.message);
  }
  return errors;
}

// Of each shader its errors, in order; and which adapter it was.
export async function judged(gpu, shaders) {
  const [adapter, device] = await opened(gpu);
  device.addEventListener("uncapturederror", (event) => event.preventDefault());
  const buffer = { type: "uniform", hasDynamicOffset: true };
  const entries = [{ binding: 0, visibility: GPUShaderStage.COMPUTE, buffer }];
  const params = device.createBindGroupLayout({ entries });
  const errors = [];
  for (let at = 0; at < shaders.length; at += AT_ONCE) {
    const some = shaders.slice(at, at + AT_ONCE).map((shader) => errorsOf(device, params, shader));
    errors.push(...(await Promise.all(some)));
  }
  const { vendor, architecture } = adapter.info;
  return { adapter: `${vendor} ${architecture}`, features: [...device.features], errors };
}
