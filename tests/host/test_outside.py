"""What an inferlet can reach of the machine it runs on: nothing, and it is told so in its own language's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.hosting import run

REFUSED = {
    "reading a file": ("open('/etc/passwd')", "FileNotFoundError"),
    "writing a file": ("open('x', 'w')", "FileNotFoundError"),
    "listing a folder": ("__import__('os').listdir('/')", "FileNotFoundError"),
    "a TCP socket": ("__import__('socket').socket()", "PermissionError"),
    "a connection": ("__import__('socket').create_connection(('127.0.0.1', 80))", "PermissionError"),
    "a name look-up": ("__import__('socket').getaddrinfo('localhost', 80)", "PermissionError"),
    "a process": ("__import__('subprocess').run(['ls'])", "OSError"),
    "a thread": ("__import__('threading').Thread(target=print).start()", "can't start new thread"),
    "standard input": ("__builtins__['input']()", "EOFError"),
    "a foreign function": ("__import__('ctypes')", "ModuleNotFoundError"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_machine_is_out_of_reach(case: str) -> None:
    expression, said = REFUSED[case]
    ended = run(f"def main(given): return {expression}")
    assert ended.error is not None, ended
    assert said in ended.traceback


def test_the_environment_and_the_arguments_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    assert run("import os, sys\ndef main(input): return [dict(os.environ), sys.argv]").result == [{}, []]


def test_clocks_and_random_bytes_are_there() -> None:
    source = "import os, time\ndef main(input): return [time.time() > 1.7e9, time.monotonic() > 0, len(set(os.urandom(64))) > 8]"
    assert run(source).result == [True, True, True]


def test_what_the_guest_s_own_libraries_write_arrives_like_anything_printed() -> None:
    ended = run("import os\ndef main(input):\n    os.write(1, b'out')\n    os.write(2, b'err')")
    assert (ended.text, ended.log) == ("out", "err")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program, a module, a package, and what must stay out of reach."""
    folder = tmp_path / "program"
    (folder / "tools" / "text").mkdir(parents=True)
    (folder / "helpers.py").write_text("from tools.text import shout\ndef hello(): return shout('hello')\n")
    (folder / "tools" / "__init__.py").write_text("")
    (folder / "tools" / "text" / "__init__.py").write_text(
        "def shout(s):\n    return s.upper() + str(1 / LEFT)\nLEFT = 1\n"
    )
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "json.py").write_text("raise RuntimeError('this must not hide the standard library')\n")
    (tmp_path / "secret.py").write_text("KEY = 1\n")
    (folder / "linked.py").symlink_to(tmp_path / "secret.py")
    return folder / "main.py"


def test_modules_beside_the_program_can_be_imported(program: Path) -> None:
    program.write_text("import json\nfrom helpers import hello\nasync def main(input): return hello()\n")
    assert run(program).result == "HELLO1.0"
    assert run(program.parent).result == "HELLO1.0"


def test_a_traceback_through_a_module_shows_its_file_and_line(program: Path) -> None:
    program.write_text(
        "import helpers, tools.text\ndef main(input):\n    tools.text.LEFT = 0\n    return helpers.hello()\n"
    )
    told = run(program).traceback
    package = program.parent / "tools" / "text" / "__init__.py"
    for line in (
        f'File "{program}", line 4',
        f'File "{package}", line 2, in shout',
        "return s.upper() + str(1 / LEFT)",
    ):
        assert line in told


def test_a_syntax_error_in_a_module_is_told_with_its_place(program: Path) -> None:
    program.write_text("import broken\ndef main(input): ...\n")
    ended = run(program)
    assert f"{program.parent / 'broken.py'}, line 1: invalid syntax" in str(ended.error)


@pytest.mark.parametrize("name", ["secret", "linked", "..secret", "nothing", "tools.nothing"])
def test_modules_elsewhere_cannot_be_imported(program: Path, name: str) -> None:
    program.write_text(f"def main(input): __import__({name!r})\n")
    assert "ModuleNotFoundError" in run(program).traceback


def test_a_source_text_has_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert "No module named 'beside'" in run("import beside").traceback
