"""Observed attention on real models, against whole passes in NumPy; and ``inferlets/snapkv``: the pages it keeps are those that
those say, and hold what the answer needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.tokenizer import Tokenizer
from pie_edge.weights.checkpoint import open_checkpoint
from tests.conftest import oracle
from tests.e2e.conftest import Cli
from tests.support import attention_oracle
from tests.support.oracle_run import PAGE, load

SNAPKV = Path(__file__).resolve().parents[2] / "inferlets/snapkv"
NEEDLE = 'Remember this: the password of the old library is "marigold" and nobody else knows it.'
QUESTION = 'So, as was said above, the password of the old library is "'
PROMPT = " ".join(
    [
        "The harbour was quiet in the early morning, and the fishing boats lay still beside the wooden pier.",
        "A baker on the corner opened her shop at five and put warm loaves in the window for the first customers.",
        "Two children walked along the canal with a small brown dog that barked at every passing bicycle.",
        NEEDLE,
        "In the afternoon the market filled with farmers who sold apples, honey, cheese and dried flowers.",
        "A violinist played under the stone bridge while the rain fell softly on the empty benches.",
        "The mayor gave a long speech about a new tram line that would connect the hills with the station.",
        "Later the wind turned north, and people closed their shutters and lit their stoves.",
        "At night the lighthouse swept its beam over the water, as it had done for a hundred years.",
        "The next day began like every other, with gulls crying above the roofs of the town.",
        QUESTION,
    ]
)
TOLERANCE = 2e-3
"""Of a page's weight, 1 in all: the default arithmetic is not exact."""


@pytest.fixture
def snapkv(cli: Cli, smollm2_path: Path) -> Callable[[int], dict[str, Any]]:
    def run(keep: int) -> dict[str, Any]:
        words = ("--json", "--", "--prompt:text", PROMPT, "--keep", str(keep), "--max-tokens", "4")
        done = cli("run", SNAPKV, "-m", smollm2_path, *words)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout)["result"])

    return run


def test_the_pages_kept_are_the_heaviest_and_they_hold_the_answer(
    snapkv: Callable[[int], dict[str, Any]], smollm2_path: Path
) -> None:
    with open_checkpoint(smollm2_path) as checkpoint:
        tokenizer = Tokenizer.from_gguf(checkpoint.metadata)
    tokens = [*tokenizer.prefix(), *tokenizer.encode(PROMPT)]
    model = load(smollm2_path)
    rows = attention_oracle.masses(model, tokens, range(model.spec.layers), PAGE)[-16:]
    wanted = rows.mean(axis=0)
    found = snapkv(4)
    np.testing.assert_allclose(found["weights"], wanted, atol=TOLERANCE)
    pages = len(wanted)
    middle = sorted(range(1, pages - 2), key=lambda page: -wanted[page])
    assert wanted[middle[3]] - wanted[middle[4]] > 2 * TOLERANCE, "the prompt must leave no doubt"
    assert found["kept"] == sorted({0, *middle[:4], pages - 2, pages - 1})
    first = len(tokenizer.encode(PROMPT[: PROMPT.index("marigold")])) // PAGE
    assert first in found["kept"]
    assert found["text"].startswith("marigold")


def test_without_them_the_answer_is_another(snapkv: Callable[[int], dict[str, Any]]) -> None:
    found = snapkv(0)
    assert len(found["kept"]) == 3
    assert not found["text"].startswith("marigold")


OBSERVE = """
from inferlet import model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet

async def main(input):
    tokens, found = input["tokens"], []
    for layers in input["layers"]:
        context, step = WorkingSet(tokens=len(tokens)), ForwardPass()
        step.embed(tokens)
        step.bind_state(context, context.geometry(0, len(tokens)))
        seen = step.observe(layers)
        Pipeline().submit(step)
        found.append((await seen)[0])
    return {"masses": found, "layers": model.attention_layers()}
"""


def test_a_prompt_longer_than_the_window_is_seen_whole_by_global_layers_alone(
    cli: Cli, gemma3_path: Path, tmp_path: Path
) -> None:
    tokens = oracle("gemma3-greedy")[-1]["prompt_ids"][:600]
    layers = [[0], [5], list(range(18))]
    (tmp_path / "observe.py").write_text(OBSERVE)
    (tmp_path / "input.json").write_text(json.dumps({"tokens": tokens, "layers": layers}))
    words = ("run", "observe.py", "-m", gemma3_path, "--json", "--input", "input.json")
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["result"]
    assert told["layers"] == 18
    wanted = attention_oracle.masses_by_layer(load(gemma3_path), tokens, PAGE)[:, -1]
    for chosen, found in zip(layers, told["masses"], strict=True):
        np.testing.assert_allclose(found, wanted[chosen].mean(axis=0), atol=TOLERANCE)
    beyond = (len(tokens) - 512) // PAGE
    assert beyond > 0
    local, everywhere, _ = told["masses"]
    assert not any(local[:beyond])
    assert all(everywhere[:beyond])
