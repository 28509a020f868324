"""A model with recurrent state from the command line: forks, a snapshot, and what the program is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Cli
from tests.support import hybrid_configs
from tests.support.family_checkpoints import make_weights, write_gguf

PROGRAM = """
import asyncio

from inferlet import Context, model


async def main(input):
    ctx = Context()
    ctx.fill("A prompt that is longer than what can be taken back.")
    forks = [ctx.fork() for _ in range(3)]
    texts = await asyncio.gather(*(fork.generate_until(max_tokens=24, stop_tokens=[]) for fork in forks))
    await ctx.save("it")
    loaded = await Context.load("it")
    again = await loaded.generate_until(max_tokens=24, stop_tokens=[])
    return [model.is_recurrent(), model.reversible_tokens(), len({*texts, again})]
"""


@pytest.mark.parametrize(("name", "reversible"), [("qwen3.5", 8), ("lfm2", 15)])
def test_forks_and_a_snapshot_of_a_hybrid_go_on_alike(name: str, reversible: int, cli: Cli, tmp_path: Path) -> None:
    config = hybrid_configs.CONFIGS[name] | {"vocab_size": 259, "max_position_embeddings": 512}
    model = write_gguf(tmp_path / "hybrid.gguf", config, make_weights(config), byte_tokens=True)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    settings = {"PIE_EDGE_HOME": str(tmp_path / "home"), "PIE_EDGE_STATE_MEMORY": "1 MiB"}
    done = cli("run", program, "-m", model, "--backend", "cpu", "--json", **settings)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["result"] == [True, reversible, 1]
    assert told["tokens"]["cached"] == 0
