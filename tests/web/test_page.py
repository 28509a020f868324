"""The page at / in a real browser: a person chats, runs an inferlet, sees figures; what others wrote is text, nothing else."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.support.scripted import Scripted
from tests.web.browser import Page, browsing
from tests.web.chromium import chromium
from tests.web.page_server import ANSWER, EVIL, KEY, MODEL, Played, serving

FILES = Path(__file__).resolve().parents[2] / "pie_edge" / "server" / "page"
ASSISTANT = "document.querySelector('.message.assistant')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = chromium()
    if program is None:
        pytest.skip("Chromium is not installed; scripts/debian-packages names it")
    with browsing(program, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def opened(page: Page) -> Iterator[tuple[Page, Played]]:
    """The page of a server without a key, ready."""
    played = Played()
    page.problems.clear()
    with serving(played) as url:
        page.open(url)
        page.until("document.querySelector('#state')?.textContent.includes('cpu')")
        yield page, played
        assert page.evaluate("window.broken === undefined")
        assert page.problems == []


def test_a_message_is_sent_and_the_answer_streams_in_as_text(opened: tuple[Page, Played]) -> None:
    page, played = opened
    page.type("#prompt", "What is <b>gravity</b>?")
    page.press_enter()
    page.until(f"{ASSISTANT}?.textContent.endsWith('bye') && !document.querySelector('#send').disabled")
    assert page.evaluate(f"{ASSISTANT}.textContent") == "".join(ANSWER)
    assert page.evaluate("document.querySelector('.message.user').textContent") == "What is <b>gravity</b>?"
    assert page.evaluate("document.querySelectorAll('.message img, .message b, .message script').length") == 0
    page.type("#prompt", "And then?")
    page.press_enter()
    page.until("document.querySelectorAll('.message.assistant').length === 2")
    assert [message["role"] for message in played.asked[-1]["messages"]] == ["user", "assistant", "user"]
    assert played.asked[-1]["messages"][1]["content"] == "".join(ANSWER)


def test_what_is_refused_is_said_and_the_conversation_goes_on(opened: tuple[Page, Played]) -> None:
    page, played = opened
    page.type("#prompt", "fail")
    page.press_enter()
    told = page.until("document.querySelector('.message.error')?.textContent")
    assert told == f"No. {EVIL}"
    page.problems.clear()  # the browser notes the status 400
    page.type("#prompt", "hello")
    page.press_enter()
    page.until("document.querySelectorAll('.message.assistant').length === 1")
    page.until("!document.querySelector('#send').disabled")
    assert [message["content"] for message in played.asked[-1]["messages"]] == ["hello"]


def test_an_inferlet_is_picked_and_run_and_its_words_and_result_are_seen(opened: tuple[Page, Played]) -> None:
    page, played = opened
    assert page.evaluate("[...document.querySelector('#program').options].map(o => o.value)") == ["", "echo", EVIL]
    page.evaluate("document.querySelector('#program').value = 'echo'")
    page.evaluate("document.querySelector('#input').value = JSON.stringify({text: 'ü', n: [1, -2.5, null]})")
    page.click("#run")
    said = page.until("!document.querySelector('#run').disabled && document.querySelector('#output').textContent")
    first, second, result = said.split("\n", 2)
    assert first == f"so far {EVIL}" and second == "x" * 300 + "ü"
    assert json.loads(result) == {"text": "ü", "n": [1, -2.5, None]}
    assert played.launched[0]["program"] == "echo" and played.launched[0]["credit"] > 0
    end = time.monotonic() + 10
    while played.granted != len(first) + len(second) + 2:
        assert time.monotonic() < end, played.granted


def test_an_input_that_is_no_object_is_told_without_asking_the_server(opened: tuple[Page, Played]) -> None:
    page, played = opened
    page.evaluate("document.querySelector('#input').value = '[1'")
    page.click("#run")
    assert "no JSON" in page.until("document.querySelector('#output').textContent")
    assert played.launched == []


def test_the_figures_are_those_of_the_metrics(opened: tuple[Page, Played]) -> None:
    page, _ = opened
    table = page.until("document.querySelector('#table').innerText")
    assert "2 used" in table
    assert page.evaluate("document.querySelector('#pages').value") == 0.25
    assert MODEL["name"] in page.evaluate("document.querySelector('#state').textContent")


def test_it_fits_a_phone_and_every_field_has_a_name(opened: tuple[Page, Played]) -> None:
    page, _ = opened
    page.resize(360, 640)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    fields = "[...document.querySelectorAll('input, textarea, select, meter')]"
    assert page.evaluate(f"{fields}.filter(one => !one.labels.length).map(one => one.id)") == []


def test_a_server_with_a_key_is_used_once_the_key_is_typed(page: Page) -> None:
    played = Played(KEY)
    with serving(played) as url:
        page.open(url)
        page.until("document.querySelector('#key-form')?.hidden === false")
        page.type("#key", KEY)
        page.press_enter()
        page.until("document.querySelector('#state').textContent.includes('cpu')")
        assert page.evaluate("document.querySelector('#key-form').hidden")
        assert (
            page.evaluate("JSON.stringify([localStorage.length, sessionStorage.length, document.cookie])") == '[0,0,""]'
        )


VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        127,
        128,
        -1,
        -32,
        -33,
        255,
        65535,
        65536,
        2**32,
        2**53 - 1,
        -(2**31),
        -(2**40),
        1.5,
        -1e300,
    ),
    *("", "a" * 31, "a" * 32, "é" * 200, "😀" * 20000, b"", b"\x00\xff", bytes(300), bytes(70000)),
    *(
        [],
        list(range(15)),
        list(range(16)),
        [[]] * 70000,
        {},
        {f"k{i}": i for i in range(16)},
        {"__proto__": {"a": [None, {}]}},
    ),
]


def test_its_messagepack_is_what_python_reads_and_writes(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = tmp_path / "both.mjs"
    script.write_text(
        f"""
import {{ readFileSync, writeFileSync }} from "node:fs";
import {{ decode, encode }} from {json.dumps((FILES / "msgpack.js").as_uri())};
writeFileSync(process.argv[3], encode(decode(readFileSync(process.argv[2]))));
"""
    )
    (tmp_path / "package.json").write_text('{"type": "module"}')
    here, there = tmp_path / "in", tmp_path / "out"
    here.write_bytes(msgpack.packb(VALUES))
    subprocess.run([node, script, here, there], check=True, timeout=60)
    assert msgpack.unpackb(there.read_bytes()) == VALUES


@pytest.mark.parametrize("data", ["c1", "a3c3a9", "d9", "93c0", "c403ff", "8101", "c0c0", "dfffffffff", "d9ffff"])
def test_bytes_that_are_no_message_are_an_error(data: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    module = json.dumps((FILES / "msgpack.js").as_uri())
    script = tmp_path / "one.mjs"
    script.write_text(
        f"""
import {{ decode }} from {module};
try {{ decode(Uint8Array.from(Buffer.from({data!r}, "hex"))); console.log("read"); }} catch {{ console.log("error"); }}
"""
    )
    done = subprocess.run([node, script], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "error\n"


def test_quantiles_are_those_of_top(tmp_path: Path) -> None:
    from pie_edge.cli.figures import quantile

    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    buckets = ((0.1, 2.0), (0.5, 2.0), (1.0, 7.0), (math.inf, 9.0))
    shares = (0.1, 0.25, 0.5, 0.75, 0.99)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name in ("figures.js", "api.js"):
        shutil.copy(FILES / name, tmp_path / name)
    script = tmp_path / "quantiles.js"
    pairs = json.dumps([[str(bound), count] for bound, count in buckets])
    script.write_text(
        f"""
import {{ quantile }} from "./figures.js";
const buckets = new Map({pairs}.map(([bound, count]) => [Number(bound.replace("inf", "Infinity")), count]));
console.log(JSON.stringify({list(shares)}.map((share) => quantile(buckets, share))));
"""
    )
    done = subprocess.run([node, script], check=True, timeout=60, capture_output=True, text=True)
    assert json.loads(done.stdout) == pytest.approx([quantile(buckets, share) for share in shares])


SOURCE = """
async def main(input):
    print("running")
    return {"got": input}
"""


@contextmanager
def whole_server(folder: Path) -> Iterator[str]:
    """``pie-edge serve`` with a key, over a model that says what it is told to."""
    model = Scripted({"count": [" one", " two", " <b>three</b>"]}).write(folder / "scripted")
    words = ["serve", "--model", str(model), "--backend", "cpu", "--port", "0", "--api-key", KEY, "--log", "json"]
    command = [sys.executable, "-P", "-m", "pie_edge.cli", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        told = ""
        while not ("is ready" in told and "listening on" in told):
            line = server.stderr.readline()
            assert line, told
            told += line
        rest: list[str] = []
        # Nobody may be left waiting for a full pipe.
        reading = threading.Thread(target=lambda: rest.extend(server.stderr or ()), daemon=True)
        reading.start()
        try:
            yield told.split("listening on ")[1].split('"')[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
            reading.join(10)
    events = [json.loads(line)["event"] for line in [*told.splitlines(), *rest]]
    assert {"note", "request"} == set(events) and KEY not in told + "".join(rest)


def test_the_whole_server_chats_and_runs_an_inferlet_through_the_page(page: Page, tmp_path: Path) -> None:
    with whole_server(tmp_path) as url:
        page.open(url)
        page.until("document.querySelector('#key-form')?.hidden === false")
        page.type("#key", KEY)
        page.press_enter()
        page.until("document.querySelector('#state').textContent.includes('scripted on cpu')")
        page.type("#prompt", "[count]")
        page.press_enter()
        page.until("document.querySelector('.message.assistant') && !document.querySelector('#send').disabled")
        assert page.evaluate(f"{ASSISTANT}.textContent") == " one two <b>three</b>"
        page.evaluate(f"document.querySelector('#source').value = {json.dumps(SOURCE)}")
        page.evaluate("document.querySelector('#input').value = '{\"a\": 1}'")
        page.click("#run")
        said = page.until("!document.querySelector('#run').disabled && document.querySelector('#output').textContent")
        assert said.startswith("running\n") and json.loads(said.split("\n", 1)[1]) == {"got": {"a": 1}}
        page.until("document.querySelector('#table').innerText.includes('tokens saved')")
