"""A traced start: what ``pie-edge run`` does until the first token, stage by stage. Started by ``benchmarks.startup``."""

from __future__ import annotations

import importlib
import json
import sys
import time

from benchmarks.trace import Tracer

STAGES = {
    "pie_edge.runtime:choose": "choose a backend",
    "pie_edge.runtime:open_checkpoint": "open the checkpoint",
    "pie_edge.runtime:registry.read": "check the model's shapes",
    "pie_edge.runtime:open_text": "tokenizer and chat template",
    "pie_edge.runtime:open_backend": "open the backend",
    "pie_edge.control.device:load_weights": "load the weights",
    "pie_edge.control.device:Device.open": "device: caches, weights",
    "pie_edge.runtime:Host.open": "open the host",
    "pie_edge.host.host:load_component": "load the language component",
    "pie_edge.host.host:Sandbox": "link the imports",
    "pie_edge.host.instance:Instantiation.poll": "instantiate the inferlet",
    "pie_edge.control.device:Device._step": "record the model's Program",
    "pie_edge.control.device:Device._epilogue": "compile the epilogue",
    "pie_edge.control.device:Device._read": "steps, all of them",
}
"""What is traced, and what the breakdown calls it."""
VULKAN_STAGES = {
    "pie_edge.backends.shared.examination:check": "run the self-test",
    "pie_edge.backends.vulkan.pipelines:Pipelines.prepare": "create pipelines",
    "pie_edge.backends.vulkan.compiler:Compiler.compile": "lower, bind and record a Program",
    "pie_edge.backends.vulkan.waiting:Waiter.wait": "wait for a step; a software device compiles in its first ones",
}


def main() -> None:
    spawned, *words = sys.argv[1:]
    tracer = Tracer()
    started = time.perf_counter()
    tracer.note("interpreter", float(spawned), started)
    app = importlib.import_module("pie_edge.cli.app")
    imported = time.perf_counter()
    tracer.note("import the command line", started, imported)
    importlib.import_module("pie_edge.runtime")
    tracer.note("import the runtime", imported, time.perf_counter())
    tracer.wrap(STAGES | VULKAN_STAGES if "vulkan" in words else STAGES)
    try:
        app.start(words)
    except SystemExit as end:
        if end.code:
            raise
    spans = [(span.title, span.thread, span.start - float(spawned), span.seconds) for span in tracer.spans]
    print(json.dumps(spans), file=sys.stderr)


if __name__ == "__main__":
    main()
