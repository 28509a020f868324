"""Make this checkout's virtual environment, then hand over to the command line. Run by ./pie-edge and scripts/*.

    python3 scripts/bootstrap.py [--extra NAME]... [-- words for pie-edge]

An environment is whole when ``.venv/pie-edge/stamp`` says so. That file is written last: after an interrupted
installation the work is done again. Only the standard library is used, of Python 3.11 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

MINIMUM = (3, 11)
FORMAT = "1"
"""Raised when environments must be made anew though pyproject.toml is the same; ./pie-edge has it too."""
MLX_MACOS = 14
"""The oldest macOS that MLX's packages are for: elsewhere pip would find none, and nothing were installed."""
OLDEST_CUDA = 13_000
"""As NVIDIA's drivers tell it: 13.0, which r580 is the first to serve. For an older one nothing is installed in vain."""
CHECKOUT_EXTRAS = ("build", "server")
"""What a checkout always has: what builds the language component, which a wheel has built in, and the server."""


class BootstrapError(Exception):
    """What went wrong and what helps, for people."""


class Environment:
    """``.venv`` of a checkout: where its parts are, and whether it is whole."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        scripts, suffix = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
        self.python = self.folder / scripts / f"python{suffix}"
        self.notes = self.folder / "pie-edge"
        self.stamp = self.notes / "stamp"
        self.made_here = self.notes / "made-here"
        self.pyproject = self.notes / "pyproject.toml"
        self.log = self.notes / "install.log"

    def identity(self) -> list[str]:
        """What an environment is made for: it can't be moved, nor outlive its interpreter."""
        return [FORMAT, str(self.root), os.path.realpath(self.python)]

    def extras(self) -> list[str] | None:
        """What is installed in a whole environment; None if it isn't whole."""
        try:
            *identity, installed = self.stamp.read_text(encoding="utf-8").splitlines()
            same = self.pyproject.read_bytes() == (self.root / "pyproject.toml").read_bytes()
        except (OSError, ValueError):
            return None
        if not same or identity != self.identity() or not self.python.exists():
            return None
        return installed.split(",")

    def write_stamp(self, extras: Sequence[str]) -> None:
        shutil.copyfile(self.root / "pyproject.toml", self.pyproject)
        partial = self.stamp.with_suffix(".partial")
        partial.write_text("\n".join([*self.identity(), ",".join(extras)]) + "\n", encoding="utf-8")
        partial.replace(self.stamp)


class Progress:
    """One line on stderr: redrawn on a terminal, and once for each stage elsewhere."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.live = stream.isatty()
        self.started = time.monotonic()
        self.stage = ""

    def begin(self, stage: str) -> None:
        self.stage = stage
        if self.live:
            self.detail("")
        else:
            print(f"pie-edge: {stage}", file=self.stream, flush=True)

    def detail(self, text: str) -> None:
        if self.live:
            line = f"pie-edge: {self.stage} ({time.monotonic() - self.started:.0f} s) {text}"
            print(f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}", end="", file=self.stream, flush=True)

    def end(self) -> None:
        if self.live:
            print("\r\x1b[2K", end="", file=self.stream)
        print(f"pie-edge: ready after {time.monotonic() - self.started:.0f} s", file=self.stream, flush=True)


def ensure(environment: Environment, extras: Sequence[str], progress: Progress) -> None:
    """Make the environment whole with ``extras``. Two at once: the second waits, then finds it made."""
    wanted = sorted({*CHECKOUT_EXTRAS, *usable_backends(), *extras})
    if set(wanted) <= set(environment.extras() or ()):
        return
    with _locked(environment.root / ".venv.lock", progress):
        there = environment.extras()
        if set(wanted) <= set(there or ()):
            return
        if there is None:
            _discard(environment)
        environment.notes.mkdir(parents=True, exist_ok=True)
        environment.stamp.unlink(missing_ok=True)
        environment.log.write_text("", encoding="utf-8")
        if not environment.python.exists():
            progress.begin("first start: making a virtual environment")
            environment.made_here.touch()
            make_environment(environment)
        wanted = sorted({*wanted, *(there or ())})
        progress.begin("installing what pie-edge needs, about a minute")
        install(environment, wanted, progress)
        environment.write_stamp(wanted)
        progress.end()


def _discard(environment: Environment) -> None:
    """Remove an environment of ours that isn't whole. One that somebody else made stays, and is installed into."""
    if environment.made_here.exists():
        shutil.rmtree(environment.folder)
    elif environment.folder.exists() and not environment.python.exists():
        raise BootstrapError(f"{environment.folder} is there but has no Python; remove it, and run this again")


def usable_backends() -> list[str]:
    """Extras of the backends that this machine has a driver for."""
    windows, mac = sys.platform == "win32", sys.platform == "darwin"
    takes_mlx = mac and platform.machine() == "arm64" and int(platform.mac_ver()[0].partition(".")[0] or 0) >= MLX_MACOS
    drivers: dict[str, Callable[[], bool]] = {
        "cuda": lambda: _serves_cuda("nvcuda.dll" if windows else "libcuda.so.1"),
        "metal": lambda: takes_mlx,
        "vulkan": lambda: _loads("vulkan-1.dll" if windows else "libvulkan.so.1"),
        # Where Vulkan or Metal is usual its own backend takes the card, and importing one more costs half a second at each start.
        "wgpu": lambda: windows or (mac and not takes_mlx),
    }
    return [name for name, here in drivers.items() if here()]


def _serves_cuda(library: str) -> bool:
    version = ctypes.c_int()
    try:
        found = ctypes.CDLL(library).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return False
    return found == 0 and version.value >= OLDEST_CUDA


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def make_environment(environment: Environment) -> None:
    """A virtual environment with pip in it, by whatever this machine has for that."""
    target = str(environment.folder)
    plain = [sys.executable, "-m", "venv"]
    ways: list[tuple[str, bool, list[list[str]]]] = [
        ("venv", _importable("venv") and _importable("ensurepip"), [[*plain, target]]),
        ("uv", shutil.which("uv") is not None, [["uv", "venv", "--seed", "--python", sys.executable, target]]),
        ("virtualenv", _importable("virtualenv"), [[sys.executable, "-m", "virtualenv", target]]),
        ("venv and pip", _importable("venv") and _importable("pip"), [[*plain, "--without-pip", target]]),
    ]
    for name, possible, commands in ways:
        if not possible:
            continue
        _keep_only_notes(environment)
        done = all(_run(command, environment) for command in commands)
        if done and (name != "venv and pip" or _lend_pip(environment)):
            return
    raise BootstrapError(_no_venv_remedy(environment))


def _importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _keep_only_notes(environment: Environment) -> None:
    """Clear what a failed way left, but not the log of why."""
    for entry in environment.folder.iterdir():
        if entry != environment.notes:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _lend_pip(environment: Environment) -> bool:
    """Install pip with the system's pip: Debian ships pip and venv, but without python3-venv not what joins them."""
    asked = [str(environment.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return bool(folder) and _run([sys.executable, "-m", "pip", "install", "--target", folder, "pip"], environment)


def _no_venv_remedy(environment: Environment) -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if Path("/etc/debian_version").exists():
        remedy = f"sudo apt install python{version}-venv"
    else:
        remedy = "install pip, virtualenv or uv for it"
    return (
        f"{sys.executable} (Python {version}) can't make a virtual environment: it has no ensurepip, and "
        "neither uv nor virtualenv nor pip could help.\n"
        f"  remedy: {remedy}, and run this again\n  log:    {environment.log}"
    )


def install(environment: Environment, extras: Sequence[str], progress: Progress) -> None:
    requirement = f"{environment.root}[{','.join(extras)}]"
    command = [str(environment.python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    if not _run([*command, "--editable", requirement], environment, progress):
        raise BootstrapError(_failed_install(environment))


def _failed_install(environment: Environment) -> str:
    lines = environment.log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.strip() for line in lines if line.startswith("ERROR:")]
    unreachable = re.compile("connection|timed out|name resolution|unreachable|proxy|ssl", re.IGNORECASE)
    if any(unreachable.search(line) for line in lines if "WARNING: Retrying" in line or line.startswith("ERROR:")):
        remedy = "check the network; pip's own settings (proxy, index, certificates) are obeyed"
    elif any("No space left" in line for line in lines):
        remedy = "free some disk space"
    else:
        remedy = "read the log; this Python or platform may lack a package that is needed"
    told = errors[0] if errors else "pip ended with an error"
    return f"pie-edge's dependencies could not be installed: {told}\n  remedy: {remedy}\n  log:    {environment.log}"


def _run(command: Sequence[str], environment: Environment, progress: Progress | None = None) -> bool:
    """Run with all output in the log; what pip is at shows on the progress line."""
    with environment.log.open("a", encoding="utf-8") as log:
        print("$", *command, file=log, flush=True)
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            print(error, file=log)
            return False
        with child:
            for line in child.stdout or ():
                log.write(line)
                doing = re.match(r"(Collecting|Installing collected packages|Building) ?:?\s*([\w.-]+)", line)
                if progress and doing:
                    progress.detail(doing[0] if doing[1] != "Installing collected packages" else "Unpacking")
    return child.returncode == 0


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Held by one process at a time; freed by the system however the holder ends."""
    with path.open("a+b") as file:
        if not _try_lock(file):
            progress.begin("waiting for another start of pie-edge that is installing")
            while not _try_lock(file):
                time.sleep(0.2)
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def hand_over(environment: Environment, words: Sequence[str]) -> int:
    command = [str(environment.python), "-P", "-m", "pie_edge.cli", *words]
    if os.name != "nt":
        os.execv(command[0], command)
    # Windows' execv returns to the shell at once; there we stay and wait.
    return subprocess.run(command, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Make .venv whole; after --, run pie-edge in it.")
    parser.add_argument("--extra", action="append", default=[], help="an extra of pyproject.toml to install as well")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    environment = Environment(Path(__file__).resolve().parent.parent)
    try:
        if sys.version_info < MINIMUM:
            raise BootstrapError(
                f"Python {'.'.join(map(str, MINIMUM))} or newer is needed; this is {platform.python_version()}"
            )
        ensure(environment, options.extra, Progress(sys.stderr))
    except BootstrapError as error:
        print(f"\nerror: {error}" if sys.stderr.isatty() else f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"error: {environment.folder} can't be made: {error}\n  remedy: work in a folder you may write to",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return hand_over(environment, words[cut + 1 :]) if cut < len(words) else 0


if __name__ == "__main__":
    sys.exit(main())
