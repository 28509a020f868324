"""Every family on any device, in exact mode: what ``transformers`` says, however the sequence is forwarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.backend.device import LoadedModel
from tests.support import family_oracle
from tests.support.oracle_run import part_pass, whole_pass

TOLERANCE = 1e-4


def check_family(name: str, opened: Any, tmp_path: Path) -> None:
    """Within the tolerance, and greedily the same tokens."""
    oracle, (runner, backend) = family_oracle.read(name), opened
    tokens = oracle.tokens

    async def logits() -> tuple[Any, Any]:
        # The snapshot: its matrices lie fused and transposed where the family has them so.
        model = await LoadedModel.from_file(backend, oracle.write(tmp_path, "safetensors"), oracle.context)
        whole = await model.logits(whole_pass(tokens))
        return whole, await model.logits(whole_pass(tokens[:-1]), part_pass(tokens, len(tokens) - 1))

    whole, last = runner.run(logits())
    np.testing.assert_allclose(whole, oracle.logits, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(last, oracle.logits[-1:], rtol=0, atol=TOLERANCE)
    assert whole[len(oracle.prompt) - 1 :].argmax(axis=-1).tolist() == oracle.greedy
