"""The control path without NumPy or threads: SmolLM2 traced from its configuration, and eight callers on a null device.

The same file runs under CPython and in Pyodide; ``report`` must say the same in both.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

from benchmarks.null_backend import NullBackend, Ran
from pie_edge.backend import BytesLike
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.queue import ForwardCall
from pie_edge.control.space import Space
from pie_edge.model import registry
from pie_edge.model.spec import Cache, Facts
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.step import Bucket
from pie_edge.sampling import presets

CALLERS, STEPS = 8, 100
HIDDEN, MLP, LAYERS, VOCABULARY = 576, 1536, 30, 49152
QUERY_WIDTH, KEY_WIDTH = 9 * 64, 3 * 64
CONFIGURATION = {
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
}
"""SmolLM2-135M's, as its config.json has it."""
F16 = Dense(DType.F16)


def tensors() -> dict[str, tuple[int, ...]]:
    """The shapes that its file lists."""
    layer = {
        "input_layernorm": (HIDDEN,),
        "self_attn.q_proj": (QUERY_WIDTH, HIDDEN),
        "self_attn.k_proj": (KEY_WIDTH, HIDDEN),
        "self_attn.v_proj": (KEY_WIDTH, HIDDEN),
        "self_attn.o_proj": (HIDDEN, QUERY_WIDTH),
        "post_attention_layernorm": (HIDDEN,),
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
        "mlp.down_proj": (HIDDEN, MLP),
    }
    found = {f"model.layers.{i}.{name}.weight": shape for i in range(LAYERS) for name, shape in layer.items()}
    return found | {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}


class Recorder(NullBackend):
    """Remembers the digest of each model step's block, in order."""

    def __init__(self) -> None:
        super().__init__(value=7)
        self.steps: list[str] = []

    def run(self, executable: Any, inputs: Mapping[str, BytesLike]) -> Ran:
        if "step" in inputs:
            self.steps.append(hashlib.blake2b(inputs["step"], digest_size=8).hexdigest())
        return super().run(executable, inputs)


async def generate(space: Space, prompt: list[int], count: int) -> list[int]:
    """``count`` greedy tokens after a prompt, a pass for each."""
    epilogue = presets.argmax().wire
    context = space.create_working_set(len(prompt) + count)
    seen, pending = 0, prompt
    answer: list[int] = []
    while len(answer) < count:
        end = seen + len(pending)
        call = ForwardCall(context, tuple(pending), seen, end, (len(pending) - 1,), epilogue)
        (best,) = await space.submit(call)
        seen, pending = end, [int(best.data[0])]
        answer += pending
    return answer


async def report() -> dict[str, Any]:
    facts = Facts("config.json", "safetensors", "llama", CONFIGURATION, tensors())
    spec, family = registry.read(facts), registry.family(facts)
    weights: dict[str, Any] = {weight.name: (F16, None) for weight in family.weights(spec)}
    cache = Cache(pages=64, page_size=16, dtype=DType.F16, logit_rows=8, token_slots=8)
    program = family.trace(spec, Bucket(8, 8, 8, 64), cache, dict.fromkeys(weights, F16))
    device = Recorder()
    model = ModelFacts("SmolLM2", spec.architecture, spec.vocabulary, spec.context, 16)
    engine = await Engine.open(model, spec, family, weights, device, DeviceSettings())
    spaces = [engine.open_space(f"caller {n}", seed=n) for n in range(CALLERS)]
    # So short that the step they share doesn't depend on how quick the machine is.
    prompts = [[n + 1] * (2 + n % 4) for n in range(CALLERS)]
    answers = await asyncio.gather(*(generate(s, p, STEPS) for s, p in zip(spaces, prompts, strict=True)))
    usages = [space.usage for space in spaces]
    for space in spaces:
        space.close()
    held = engine.pool.total - engine.pool.free - engine.prefixes.reclaimable
    statistics = engine.statistics
    await engine.close()
    return {
        "program": program.digest,
        "ops": len(program.ops),
        "steps": statistics.steps,
        "largest_step": statistics.largest_step,
        "forwarded": [usage.forwarded_tokens for usage in usages],
        "passes": [usage.passes for usage in usages],
        "answers": answers,
        "blocks": device.steps,
        "pages_held": held,
    }
