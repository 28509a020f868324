"""``pie-edge eval`` against ``transformers``: the same windows over the same text, in float32 on the dequantised weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DATA
from tests.e2e.conftest import Cli

ORACLE: dict[str, Any] = json.loads((DATA / "perplexity.json").read_text(encoding="utf-8"))
TEXT = DATA / "lighthouse.txt"


@pytest.mark.parametrize("run", ORACLE["runs"], ids=lambda run: f"{run['window']}-{run['stride']}")
def test_perplexity_is_that_of_transformers(cli: Cli, smollm2_path: Path, run: dict[str, Any]) -> None:
    done = cli(
        *("eval", TEXT, "--model", smollm2_path, "--backend", "cpu", "--json"),
        *("--window", run["window"], "--stride", run["stride"]),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["tokens"], found["scored"]) == (ORACLE["tokens"], run["scored"])
    assert found["nats"] == pytest.approx(run["nats"], rel=1e-5)
    if run["stride"] < run["window"]:  # then all but the first token are scored
        assert found["bytes"] == len(TEXT.read_bytes()) - len("The")
    assert found["perplexity"] == pytest.approx(math.exp(found["nats"] / found["scored"]))
    assert found["bits_per_byte"] == pytest.approx(found["nats"] / math.log(2) / found["bytes"])


def test_people_get_a_table(cli: Cli, smollm2_path: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("The light came on before sunset.")
    done = cli("eval", "short.txt", "--model", smollm2_path, "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("perplexity     ")
    assert "tokens         7, 6 of them scored" in done.stdout


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "can't be read"), (b"", "is empty"), (b"\xff\xfe", "no UTF-8: invalid start byte at byte 0")],
)
def test_a_file_that_is_no_text_is_refused(cli: Cli, tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    done = cli("eval", "text.txt", "--model", "nothing")
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("The", (), "leave nothing to score"),
        ("The light came on.", ("--window", 4, "--stride", 5), "a stride of 5 tokens leaves some out"),
        ("The light came on.", ("--window", 100_000), "sees 8192 at once"),
    ],
)
def test_what_can_t_be_measured_is_refused_without_a_traceback(
    cli: Cli, smollm2_path: Path, tmp_path: Path, text: str, options: tuple[Any, ...], told: str
) -> None:
    (tmp_path / "text.txt").write_text(text)
    done = cli("eval", "text.txt", "--model", smollm2_path, "--backend", "cpu", *options)
    assert done.returncode == 2
    assert told in done.stderr and "Traceback" not in done.stderr
