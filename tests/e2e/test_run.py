"""The command line for real: a model, a device, a guest, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pie_edge.backend_choice import probe
from tests.conftest import oracle
from tests.e2e.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "inferlets/quickstart/main.py"
CHAT = ROOT / "inferlets/chat/main.py"
AUTOREGRESSIVE = ROOT / "inferlets/autoregressive/main.py"
PROMPT = "The capital of France is"


def program(folder: Path, body: str) -> Path:
    """An inferlet whose ``main`` has this body, from its third line on."""
    file = folder / "program.py"
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    file.write_text(f"from inferlet import chat, model, session\nasync def main(input):\n{lines}")
    return file


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_the_quickstart_continues_a_prompt_as_the_oracle_does(cli: Cli, model: str) -> None:
    case = oracle(model.replace("-135m", "-greedy").replace("-270m", "-greedy"))[0]
    done = cli("run", QUICKSTART, "-m", model, "--json", "--", "--prompt:text", case["prompt"], "--max-tokens", "8")
    assert done.returncode == 0, done.stderr
    assert case["greedy_text"].startswith(json.loads(done.stdout)["result"]["text"])


def test_the_loop_by_hand_gives_what_the_quickstart_does(cli: Cli) -> None:
    words = ["--json", "--", "--prompt", PROMPT, "--max-tokens", "12"]
    by_hand, quick = (json.loads(cli("run", file, *words).stdout) for file in (AUTOREGRESSIVE, QUICKSTART))
    assert by_hand["result"] == quick["result"]


def test_json_tells_tokens_timings_backend_and_device(cli: Cli) -> None:
    words = ["--json", "--seed", "5", "--", "--prompt", PROMPT, "--max-tokens", "8"]
    told = json.loads(cli("run", QUICKSTART, *words).stdout)
    assert told["seed"] == 5
    assert told["model"] == "smollm2-135m"
    assert told["backend"] == "cpu"
    assert told["device"]
    assert told["tokens"]["sampled"] == 8
    assert told["tokens"].keys() == {
        "forwarded", "sampled", "passes", "cached", "recomputed", "evicted_pages", "parked_pages", "restored_pages",
        "released_pages", "parked_states", "restored_states", "predicted", "mispredicted",
    }  # fmt: skip
    assert told["tokens"]["predicted"] + told["tokens"]["mispredicted"] > 0
    assert {"load", "time_to_first_token", "tokens_per_second"} <= told["timings"].keys()
    assert all(value > 0 for value in told["timings"].values())


def test_chat_streams_its_text_as_it_comes(cli: Cli) -> None:
    words = [
        sys.executable,
        "-P",
        "-m",
        "pie_edge.cli",
        "run",
        str(CHAT),
        "-q",
        "--",
        "--prompt",
        "Count from 1 to 20.",
    ]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    child.stdout.read(1)
    first = time.monotonic()
    rest = child.stdout.read()
    child.stdout.close()
    assert child.wait() == 0
    assert len(rest) > 20
    assert time.monotonic() - first > 0.1


def test_an_exception_is_told_with_the_users_file_and_line(cli: Cli, tmp_path: Path) -> None:
    file = program(tmp_path, "count = input['count']\nreturn 1 / count")
    done = cli("run", file, "-q", "--", "--count", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert f'File "{file}", line 4, in main' in done.stderr
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "pie_edge" not in done.stderr


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("async def main(input:\n", "inferlet-invalid"),
        ("def other(): ...\n", "inferlet-invalid"),
        ("raise ValueError('at import')\n", "inferlet-failed"),
        ("import numpy\nasync def main(input): ...\n", "inferlet-failed"),
        ("async def main(input): return object()\n", "inferlet-failed"),
        ("async def main(input): return float('nan')\n", "inferlet-failed"),
        ("async def main(input):\n    while True: pass\n", "inferlet-timeout"),
        ("import asyncio\nasync def main(input): await asyncio.sleep(60)\n", "inferlet-timeout"),
        ("async def main(input):\n    hoard = []\n    while True: hoard.append(bytearray(2**20))\n", "inferlet-memory"),
        ("", "inferlet-invalid"),
    ],
)
def test_a_bad_inferlet_ends_with_a_typed_error_and_no_traceback_of_ours(
    cli: Cli, tmp_path: Path, source: str, code: str
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(source)
    done = cli("run", file, "--json", "--max-time", "3")
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] == code
    assert error["message"]
    assert "pie_edge" not in done.stderr


def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps({"prompt": "word " * 20_000}))
    done = cli("run", QUICKSTART, "--json", "--input", "in.json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert "8192" in error["message"].replace(",", "") + error.get("traceback", "").replace(",", "")


def test_a_truncated_model_is_refused_by_name(cli: Cli, tmp_path: Path, smollm2_path: Path) -> None:
    with smollm2_path.open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(2**20))
    done = cli("run", QUICKSTART, "-m", "./cut.gguf", "--", "--prompt", PROMPT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cut.gguf" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_device_that_is_not_here_is_refused_and_not_replaced(cli: Cli) -> None:
    done = cli("run", QUICKSTART, "--backend", "cpu", "--device", "abacus", "--", "--prompt", PROMPT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "backend cpu has no device 'abacus'; it has 0: " in done.stderr


@pytest.mark.skipif(bool(probe("cuda").devices), reason="there is a CUDA device")
def test_cuda_without_a_driver_is_refused_with_the_remedy(cli: Cli) -> None:
    done = cli("run", QUICKSTART, "--backend", "cuda", "--", "--prompt", PROMPT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "backend cuda was asked for, but" in done.stderr
    assert "r580" in done.stderr or sys.platform == "darwin"


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
@pytest.mark.parametrize("body", ["while True: pass", "import asyncio\nawait asyncio.sleep(60)"])
def test_an_interrupt_ends_the_run_at_once_with_130(tmp_path: Path, body: str) -> None:
    file = program(tmp_path, f"print('begun')\n{body}")
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "pie_edge.cli", "run", file, "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, error = child.communicate(timeout=30)
    assert (child.returncode, error) == (130, "")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("backend", ["vulkan", "wgpu", "metal"])
def test_a_device_answers_as_cpu_does_and_a_software_one_is_called_so(cli: Cli, backend: str) -> None:
    found = probe(backend)
    if not found.devices:
        pytest.skip(f"needs a device of {backend}: {found.reason}; {found.remedy}")
    words = ("--", "--prompt", PROMPT, "--max-tokens", "8")
    done = cli("run", QUICKSTART, "--backend", backend, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == cli("run", QUICKSTART, "--backend", "cpu", *words).stdout
    assert f"on {backend}, {found.devices[0]}" in done.stderr
    assert ("(a software device" in done.stderr) == found.software
    assert "Traceback" not in done.stderr


def test_doctor_is_one_object_with_every_backend(cli: Cli) -> None:
    done = cli("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert {check["name"]: check["works"] for check in report["backends"]} == {
        **{name: bool(probe(name).devices) for name in ("cuda", "metal", "vulkan", "wgpu")},
        "cpu": True,
    }
    assert all(check["works"] or (check["found"] and check["remedy"]) for check in report["backends"])


def test_a_model_is_imported_listed_shown_and_removed(cli: Cli, tmp_path: Path, smollm2_path: Path) -> None:
    home = {"PIE_EDGE_HOME": str(tmp_path / "home")}
    imported = json.loads(cli("model", "import", smollm2_path, "--name", "mine", "--json", **home).stdout)
    assert imported["bytes"] == smollm2_path.stat().st_size
    listed = json.loads(cli("model", "list", "--json", **home).stdout)
    assert [entry["name"] for entry in listed["models"]] == ["mine"]
    assert "smollm2-135m" in [entry["name"] for entry in listed["built_in"]]
    shown = json.loads(cli("model", "show", "mine", "--json", **home).stdout)
    assert (shown["architecture"], shown["context"], shown["layers"], shown["runs"]) == ("llama", 8192, 30, True)
    assert shown["parameters"] == 134_515_008
    assert list(shown["encodings"]) == ["Q4_1", "Q8_0", "F32"]
    assert "im_start" in shown["chat_template"]
    assert cli("model", "remove", "mine", **home).stdout == "mine: removed\n"
    done = cli("model", "show", "mine", **home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no model 'mine'" in done.stderr
    assert smollm2_path.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"PIE_EDGE_PAGE_SIZE": "8"},
        {"PIE_EDGE_PAGE_SIZE": "32"},
        {"PIE_EDGE_EXACT": "true"},
        {"PIE_EDGE_THREADS": "1"},
        {"PIE_EDGE_KV_MEMORY": "8 MiB"},
    ],
    ids=str,
)
def test_settings_of_the_device_change_no_word(cli: Cli, settings: dict[str, str]) -> None:
    done = cli("run", QUICKSTART, "-q", "--", "--prompt", PROMPT, "--max-tokens", "8", **settings)
    assert (done.returncode, done.stdout) == (0, " Paris.\n\nThe answer is:\n"), done.stderr


@pytest.mark.parametrize(
    ("settings", "status", "told"),
    [
        ({"PIE_EDGE_MEMORY": "10 MiB"}, 1, "needs 92.1 MiB for its weights"),
        ({"PIE_EDGE_KV_MEMORY": "1 MiB"}, 1, "OutOfPages: main asked for 3 KV pages of 16 tokens"),
        ({"PIE_EDGE_KV_MEMORY": "100 KiB"}, 2, "kv_memory is 102400 bytes, and a page of 16 tokens takes 737280"),
    ],
    ids=str,
)
def test_too_little_memory_is_refused_with_what_is_needed_and_what_there_is(
    cli: Cli, settings: dict[str, str], status: int, told: str
) -> None:
    done = cli("run", QUICKSTART, "-q", "--", "--prompt", PROMPT, **settings)
    assert (done.returncode, done.stdout) == (status, "")
    assert told in done.stderr
    assert "pie_edge" not in done.stderr
