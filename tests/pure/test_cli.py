"""The command line around a runtime that is played: what it prints where, and the status it ends with."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pie_edge.backend_choice import Choice, PassedOver
from pie_edge.cli import main
from pie_edge.cli.output import shown
from pie_edge.cli.progress import Notes
from pie_edge.config import Settings
from pie_edge.errors import InferletFailed, ModelNotFound, OutOfPages

TRACEBACK = 'Traceback (most recent call last):\n  File "main.py", line 3, in main\nValueError: no\n'


class PlayedRuntime:
    """Stands where ``pie_edge.runtime`` is: remembers how it was asked, and plays what it was told."""

    def __init__(
        self,
        result: Any = None,
        *,
        pieces: tuple[str, ...] = (),
        failure: BaseException | None = None,
        less: bool = False,
    ) -> None:
        self.result, self.pieces, self.failure = result, pieces, failure
        self.choice = Choice("cpu", "a processor", (PassedOver("cuda", "no driver"), PassedOver("wgpu", "no driver")))
        self.engine = SimpleNamespace(less=["kv_memory asks for more"] if less else [])
        self.closed = False
        self.opened: dict[str, Any] = {}
        self.ran: dict[str, Any] = {}

    async def open_runtime(self, model: str, settings: Any, **options: Any) -> PlayedRuntime:
        self.opened = {"model": model, "settings": settings, **options}
        options["progress"](0, 10, "loading")
        return self

    async def run(
        self,
        path: Path,
        input: dict[str, Any],
        *,
        seed: int,
        on_text: Callable[[str], None],
        on_log: Callable[[str], None],
    ) -> Any:
        self.ran = {"path": path, "input": input, "seed": seed}
        for piece in self.pieces:
            on_text(piece)
        if self.failure is not None:
            raise self.failure
        usage = {"forwarded": 5, "sampled": 3, "passes": 3}
        return SimpleNamespace(
            result=self.result, usage=usage, timings={"load": 0.5, "time_to_first_token": 0.1}, swap_rate=0.0
        )

    async def close(self) -> None:
        self.closed = True


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """Runs the command line in this process: status, stdout, stderr."""
    for variable in ("PIE_EDGE_BACKEND", "PIE_EDGE_MODEL", "PIE_EDGE_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIE_EDGE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    (tmp_path / "main.py").write_text("async def main(input): ...\n")
    monkeypatch.chdir(tmp_path)

    def run(*words: str, runtime: PlayedRuntime | None = None) -> tuple[int, str, str]:
        monkeypatch.setitem(sys.modules, "pie_edge.runtime", runtime or PlayedRuntime())
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    yield run
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_setting_that_asks_for_more_than_there_is_is_a_note(run: Run) -> None:
    assert "pie-edge: kv_memory asks for more\n" in run("run", "main.py", runtime=PlayedRuntime(less=True))[2]


def test_a_result_is_printed_and_the_notes_go_to_stderr(run: Run) -> None:
    runtime = PlayedRuntime({"text": " Paris."})
    status, out, err = run("run", "main.py", "--", "--prompt", "hi", "--max-tokens", "8", runtime=runtime)
    assert (status, out) == (0, " Paris.\n")
    assert "smollm2-135m on cpu, a processor; passed over cuda, wgpu: no driver\n" in err
    assert runtime.ran["input"] == {"prompt": "hi", "max_tokens": 8}
    assert runtime.closed


@pytest.mark.parametrize(
    ("pieces", "result", "printed"),
    [
        (("Hel", "lo"), None, "Hello\n"),
        (("Hel", "lo\n"), None, "Hello\n"),
        (("Hello",), {"text": "Hello"}, "Hello\n"),
        (("Hello",), {"text": "Goodbye"}, "Hello\nGoodbye\n"),
        (("Hello",), "Goodbye", "Hello\nGoodbye\n"),
        (("Hello",), {"tokens": 1}, "Hello\n"),
        (("Hello",), [1], "Hello\n"),
        (("  \n",), [1], "  \n[\n  1\n]\n"),
        ((), None, ""),
        ((), "", ""),
        ((), [1, "ü"], '[\n  1,\n  "ü"\n]\n'),
        ((), 3, "3\n"),
        ((), False, "false\n"),
    ],
)
def test_streamed_text_comes_as_it_is_and_is_not_printed_twice(
    run: Run, pieces: tuple[str, ...], result: Any, printed: str
) -> None:
    assert run("run", "main.py", runtime=PlayedRuntime(result, pieces=pieces))[:2] == (0, printed)


def test_a_result_beside_streamed_text_is_a_note(run: Run) -> None:
    status, out, err = run("run", "main.py", runtime=PlayedRuntime({"tokens": 1}, pieces=("Hello",)))
    assert (status, out) == (0, "Hello\n")
    assert 'pie-edge: result {"tokens": 1}\n' in err


def test_json_is_one_object_with_result_tokens_timings_and_device(run: Run) -> None:
    runtime = PlayedRuntime({"n": 1}, pieces=("a", "b"))
    status, out, err = run("run", "main.py", "--json", "-q", "--seed", "7", runtime=runtime)
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert told["result"] == {"n": 1}
    assert told["text"] == "ab"
    assert told["tokens"] == {"forwarded": 5, "sampled": 3, "passes": 3}
    assert told["timings"]["time_to_first_token"] == 0.1
    assert (told["backend"], told["device"], told["model"], told["seed"]) == ("cpu", "a processor", "smollm2-135m", 7)
    assert told["passed_over"] == {"cuda": "no driver", "wgpu": "no driver"}


def test_an_inferlets_exception_is_its_own_traceback_and_status_1(run: Run) -> None:
    runtime = PlayedRuntime(failure=InferletFailed("ValueError: no", TRACEBACK))
    status, out, err = run("run", "main.py", "--quiet", runtime=runtime)
    assert (status, out, err) == (1, "", TRACEBACK)
    assert runtime.closed


def test_with_json_an_error_is_an_object_on_stdout_too(run: Run) -> None:
    runtime = PlayedRuntime(failure=OutOfPages("main.py asked for 9 pages, 1 is free"))
    status, out, err = run("run", "main.py", "--json", "-q", runtime=runtime)
    assert status == 1
    assert json.loads(out) == {"error": {"code": "out-of-pages", "message": "main.py asked for 9 pages, 1 is free"}}
    assert err == "error: main.py asked for 9 pages, 1 is free\n"


def test_with_json_the_text_before_a_failure_is_kept(run: Run) -> None:
    runtime = PlayedRuntime(failure=InferletFailed("ValueError: no", TRACEBACK), pieces=("Hel", "lo"))
    told = json.loads(run("run", "main.py", "--json", "-q", runtime=runtime)[1])
    assert told["text"] == "Hello"
    assert told["error"]["code"] == "inferlet-failed"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "none.py", "--json"), "usage"),
        (("run", "main.py", "--json", "--input", "none.json"), "usage"),
        (("run", "main.py", "--json", "--backend", "gpu"), "config"),
        (("model", "show", "no-such-model", "--json"), "model-not-found"),
        (("model", "remove", "no-such-model", "--json"), "model-not-found"),
    ],
)
def test_with_json_an_error_before_anything_ran_is_an_object_too(run: Run, words: tuple[str, ...], code: str) -> None:
    status, out, err = run(*words)
    assert status == 2
    assert json.loads(out)["error"]["code"] == code
    assert err == f"error: {json.loads(out)['error']['message']}\n"


def test_an_error_of_ours_that_nobody_expected_is_one_line_and_no_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = PlayedRuntime(failure=ZeroDivisionError("division by zero"))
    status, _, err = run("run", "main.py", "-q", runtime=runtime)
    assert status == 1
    assert (
        err
        == "error: unexpected ZeroDivisionError: division by zero (PIE_EDGE_DEBUG=1 shows where; please report it)\n"
    )
    monkeypatch.setenv("PIE_EDGE_DEBUG", "1")
    assert "Traceback" in run("run", "main.py", "-q", runtime=runtime)[2]


def test_an_interrupt_ends_with_130_and_says_nothing(run: Run) -> None:
    runtime = PlayedRuntime(failure=KeyboardInterrupt())
    assert run("run", "main.py", "-q", runtime=runtime) == (130, "", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "none.py"], "error: none.py is not there; name the inferlet's Python source"),
        (["run", "."], None),
        (["run", "/"], "error: / is a folder without a main.py"),
        (["run", "main.py", "--", "word"], "error: 'word' after -- has no key"),
        (["run", "main.py", "--seed", "-1"], "error: --seed is -1; it must be from 0 to 4294967295"),
        (["run", "main.py", "--max-time", "soon"], "error: --max-time: limits.time is"),
        (["run", "main.py", "--allow-http", "http://x/"], "error: --allow-http: limits.http is"),
        (["run", "main.py", "--backend", "gpu"], 'error: --backend: backend is "gpu"; it must be'),
        (["run", "main.py", "--frob"], "No such option: --frob"),
        (["run"], "Missing argument"),
        (["frob"], "No such command 'frob'"),
        (["config", "show", "--", "--a"], "error: words after -- are an inferlet's input; config takes none"),
    ],
)
def test_what_is_asked_wrongly_ends_with_2_and_the_reason(run: Run, words: list[str], told: str | None) -> None:
    status, out, err = run(*words)
    assert status == (2 if told else 0)
    assert (told or "") in err
    assert not out


@pytest.mark.skipif(os.name == "nt", reason="links, pipes and devices are POSIX's")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("loop.py", "can't be reached (Too many levels of symbolic links)"),
        ("dangling.py", "is a link to none.py, which is not there"),
        ("pipe.py", "is a device or a pipe, not a file"),
        ("/dev/null", "is a device or a pipe, not a file"),
        ("main.py/main.py", "can't be reached (Not a directory)"),
    ],
)
def test_a_source_that_is_no_file_is_told_for_what_it_is(run: Run, tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "dangling.py").symlink_to("none.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert run("run", name) == (2, "", f"error: {name} {told}; name the inferlet's Python source\n")


def test_a_model_that_is_not_there_ends_with_2(run: Run) -> None:
    runtime = PlayedRuntime()

    async def refuse(*_: Any, **__: Any) -> Any:
        raise ModelNotFound("there is no model 'x' here")

    runtime.open_runtime = refuse  # type: ignore[method-assign]
    assert run("run", "main.py", "-m", "x", runtime=runtime) == (2, "", "error: there is no model 'x' here\n")


def test_flags_reach_the_runtime_as_settings(run: Run) -> None:
    runtime = PlayedRuntime()
    run("run", "main.py", "-m", "m", "--backend", "cpu", "--device", "0", "--max-time", "1.5", runtime=runtime)
    settings = runtime.opened["settings"]
    assert (runtime.opened["model"], runtime.opened["backend"], runtime.opened["device"]) == ("m", "cpu", "0")
    assert settings.limits.time == 1.5


def test_deterministic_is_a_flag_that_only_sets(run: Run) -> None:
    Path("config.toml").write_text("deterministic = true\n")
    for words, wanted in (((), True), (("--deterministic",), True)):
        runtime = PlayedRuntime()
        run("run", "main.py", *words, runtime=runtime)
        assert runtime.opened["settings"].deterministic is wanted
    Path("config.toml").write_text("")
    for words, wanted in (((), False), (("--deterministic",), True)):
        runtime = PlayedRuntime()
        run("run", "main.py", *words, runtime=runtime)
        assert runtime.opened["settings"].deterministic is wanted


def test_allowed_hosts_add_up_and_stand_in_the_place_of_those_of_the_configuration(run: Run) -> None:
    Path("config.toml").write_text('[limits]\nhttp = ["example.org"]\n')
    for words, hosts in (
        ((), ("example.org",)),
        (("--allow-http", "localhost:8080", "--allow-http", "*"), ("localhost:8080", "*")),
    ):
        runtime = PlayedRuntime()
        run("run", "main.py", *words, runtime=runtime)
        assert runtime.opened["settings"].limits.http == hosts


def test_without_a_seed_every_run_has_another(run: Run) -> None:
    seeds = set()
    for _ in range(4):
        runtime = PlayedRuntime()
        run("run", "main.py", runtime=runtime)
        seeds.add(runtime.ran["seed"])
    assert len(seeds) == 4


def test_words_after_the_dashes_come_over_those_of_the_input_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1, "b": 2}')
    runtime = PlayedRuntime()
    run("run", "main.py", "--input", "in.json", "--", "--b", "3", runtime=runtime)
    assert runtime.ran["input"] == {"a": 1, "b": 3}


def test_config_init_writes_the_file_once_and_show_says_where_each_setting_is_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.unlink()
    assert run("config", "init")[:2] == (0, f"{path}\n")
    assert run("config", "init")[0] == 2
    assert run("config", "init", "--force")[0] == 0
    monkeypatch.setenv("PIE_EDGE_THREADS", "2")
    shown_settings = json.loads(run("config", "show", "--json")[1])["settings"]
    assert shown_settings["threads"] == {"value": 2, "origin": "PIE_EDGE_THREADS"}
    assert shown_settings["page_size"] == {"value": 16, "origin": "default"}
    assert "threads           = 2" in run("config", "show")[1]


def test_a_batch_is_told_how_to_pool_and_to_sample_as_a_server_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def answer(*given: Any) -> Any:
        asked.append(next(one for one in given if isinstance(one, Settings)))
        return SimpleNamespace(done=0, failed=0, before=0)

    monkeypatch.setattr("pie_edge.cli.batch._run", answer)
    assert run("batch", "in", "out", "--pooling", "mean", "--no-generation-config")[0] == 0
    assert run("batch", "in", "out")[0] == 0
    assert [(one.pooling, one.generation_config) for one in asked] == [("mean", False), ("auto", True)]


def test_a_file_that_is_not_there_is_submitted_to_nobody(run: Run) -> None:
    for program in ("/nonexist.py", "here/main.py"):
        status, _, err = run("submit", program, "--url", "http://127.0.0.1:1")
        assert (status, f"{program} is not there" in err) == (2, True)
    assert "there is no server" in run("submit", "name", "--url", "http://127.0.0.1:1")[2]


def test_a_wrong_setting_stops_every_command_that_reads_settings(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("page_sise = 8\n")
    for words in (["config", "show"], ["run", "main.py"]):
        status, _, err = run(*words)
        assert status == 2
        assert "did you mean page_size?" in err


def test_the_doctor_reads_the_settings_and_tells_what_is_wrong_with_them(run: Run, tmp_path: Path) -> None:
    def settings() -> dict[str, Any]:
        system: list[dict[str, Any]] = json.loads(run("doctor", "--json")[1])["system"]
        return next(check for check in system if check["name"] == "settings")

    assert settings()["works"] is True
    (tmp_path / "config.toml").write_text("page_sise = 8\n")
    assert settings()["works"] is False
    assert "did you mean page_size?" in settings()["found"]
    assert run("doctor")[0] == 1


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version")[:2] == (0, "pie-edge 0.1.0\n")


def test_a_result_for_people_is_text_where_it_can_be() -> None:
    assert shown({"text": "a"}) == "a"
    assert shown({"text": 1}) == '{\n  "text": 1\n}'
    assert shown({"text": "a", "n": 1}) == '{\n  "text": "a",\n  "n": 1\n}'


SPEAKS = """
import sys
from pie_edge.cli.outcome import reported
@reported
def speak():
    for number in range(100_000):
        print(number)
try:
    speak()
except Exception as error:
    sys.exit(error.exit_code)
"""


def test_a_reader_that_goes_away_ends_the_command_without_a_word() -> None:
    child = subprocess.Popen([sys.executable, "-c", SPEAKS], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout
    assert child.stderr
    child.stdout.readline()
    child.stdout.close()
    assert child.wait(30) == 141
    assert child.stderr.read() == b""
    child.stderr.close()


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = ("numpy", "wasmtime", "rich", "jinja2", "pydantic", "huggingface_hub", "pie_edge.runtime")
    script = f"import sys, pie_edge.cli.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_interrupt_while_the_inferlet_runs_closes_the_runtime(run: Run) -> None:
    class Waiting(PlayedRuntime):
        async def run(self, *_: Any, **__: Any) -> Any:
            asyncio.get_running_loop().call_later(0.05, _interrupt)
            await asyncio.sleep(30)

    runtime = Waiting()
    assert run("run", "main.py", "-q", runtime=runtime) == (130, "", "")
    assert runtime.closed


def test_further_interrupts_while_the_runtime_closes_change_nothing(run: Run) -> None:
    class Closing(PlayedRuntime):
        async def run(self, *_: Any, **__: Any) -> Any:
            asyncio.get_running_loop().call_later(0.05, _interrupt)
            await asyncio.sleep(30)

        async def close(self) -> None:
            for _ in range(3):
                _interrupt()
                await asyncio.sleep(0.01)
            await asyncio.to_thread(_interrupt_from_a_thread)
            self.closed = True

    runtime = Closing()
    assert run("run", "main.py", "-q", runtime=runtime) == (130, "", "")
    assert runtime.closed
    _interrupt()  # as the process ends
    assert run("run", "main.py", "-q")[0] == 0


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def _interrupt_from_a_thread() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_redraws_one_line_and_leaves_it_clean() -> None:
    stream = Terminal()
    notes = Notes(stream=stream)
    notes(0, 4 * 2**20, "fetching")
    notes(4 * 2**20, 4 * 2**20, "fetching")
    notes(3, 9, "testing")
    notes.note("done")
    assert "testing [########................] 3 of 9" in stream.getvalue()
    assert "fetching [........................]   0 % of 4 MiB" in stream.getvalue()
    assert "fetching [########################] 100 % of 4 MiB" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2Kpie-edge: done\n")


def test_elsewhere_only_a_stage_that_takes_long_is_told_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.5, 1.5, 2.5, 2.6, 2.7, 3.9])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    notes = Notes(stream=stream)
    for done in (0, 1, 2, 3):
        notes(done, 9, "fetching")
    notes(0, 0, "building")
    notes(0, 9, "loading")
    notes(9, 9, "loading")
    assert stream.getvalue() == "pie-edge: fetching\npie-edge: building\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's device that is always full")
def test_an_output_that_cant_be_written_is_told_and_fails() -> None:
    for words in (["config", "show"], ["config", "show", "--json"], ["--version"]):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            command = [sys.executable, "-m", "pie_edge.cli", *words]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "error: No space left on device\n"), words


@pytest.mark.skipif(os.name == "nt", reason="descriptors are POSIX's")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "status"), [("config show", 0), ("--version", 0), ("run none.py", 2), ("run main.py --input -", 2)]
)
def test_closed_standard_streams_are_as_good_as_the_null_device(
    tmp_path: Path, closed: str, words: str, status: int
) -> None:
    (tmp_path / "main.py").touch()
    (tmp_path / "config.toml").touch()
    command = f'"{sys.executable}" -m pie_edge.cli {words} {closed}'
    environment = {**os.environ, "PIE_EDGE_CONFIG": str(tmp_path / "config.toml")}
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == status
    assert b"report it" not in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's device that is always full")
def test_an_error_that_cant_be_told_keeps_its_status() -> None:
    command = [sys.executable, "-m", "pie_edge.cli", "run", "no-such-file.py", "--json"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        assert subprocess.run(command, stdout=full, stderr=full, check=False).returncode == 2
