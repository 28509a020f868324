"""``pie-edge doctor``: what works on this machine, and for what doesn't, the reason and the remedy."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pie_edge import __version__
from pie_edge.backend_choice import BACKENDS, choose
from pie_edge.cli.outcome import reported
from pie_edge.config import load
from pie_edge.errors import BackendUnavailable, ConfigError

PROBE_SECONDS = 30
PACKAGES = ("numpy", "wasmtime", "tokenizers", "jinja2", "typer", "huggingface-hub")
LOW_DISK = 2 * 2**30


@dataclass(frozen=True)
class Check:
    """One line of the report. ``works`` is None for a fact that is neither good nor bad."""

    name: str
    works: bool | None
    found: str
    remedy: str = ""
    details: tuple[str, ...] = ()


@reported
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Check backends, packages, settings, caches and disk; exit 1 if an inferlet could not run here."""
    backends = [check_backend(name) for name in BACKENDS]
    system = [_python(), *map(_package, PACKAGES), _settings(), *(_folder(*place) for place in _places())]
    try:
        chosen = str(choose())
    except BackendUnavailable as error:
        chosen = f"none: {error}"
    healthy = any(check.works for check in backends) and not any(check.works is False for check in system)
    if as_json:
        report = {
            "version": __version__,
            "healthy": healthy,
            "auto": chosen,
            "backends": [asdict(check) for check in backends],
            "system": [asdict(check) for check in system],
        }
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        _print_report(chosen, backends, system)
    raise typer.Exit(0 if healthy else 1)


def _print_report(chosen: str, backends: list[Check], system: list[Check]) -> None:
    print(f"pie-edge {__version__}; auto takes {chosen}")
    for title, checks in (("backends", backends), ("system", system)):
        print(f"\n{title}")
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = {True: "ok  ", False: "no  ", None: "    "}[check.works]
            remedy = f"\n{'':{width + 8}}remedy: {check.remedy}" if check.remedy else ""
            details = "".join(f"\n{'':{width + 8}}{line}" for line in check.details)
            print(f"  {mark}{check.name:<{width}}  {check.found}{remedy}{details}")


def check_backend(name: str) -> Check:
    """Looked at in a process of its own: a broken driver may take that down, and doctor is what one runs then."""
    import subprocess

    command = [sys.executable, "-P", "-c", _PROBE_SCRIPT, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Check(name, False, f"looking at it took over {PROBE_SECONDS} s", "check the driver")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return Check(name, False, f"looking at it ended with status {done.returncode}: {last[0]}", "check the driver")
    return _verdict(name, json.loads(done.stdout.splitlines()[-1]))


_PROBE_SCRIPT = """
import dataclasses, json, sys
from pie_edge.backend_choice import describe, probe
found = probe(sys.argv[1])
details = describe(sys.argv[1]) if found.devices else []
print(json.dumps(dataclasses.asdict(found) | {"details": details}))
"""


def _verdict(name: str, finding: dict[str, Any]) -> Check:
    devices = ", ".join(name for name in finding["devices"] if name not in finding["refused"])
    devices += " (software)" if finding["software"] else ""
    if finding["spare"]:
        devices += f"; only if asked for: {', '.join(finding['spare'])} (software)"
    if finding["reason"]:
        return Check(name, False, finding["reason"], finding["remedy"])
    return Check(name, True, devices, details=tuple(finding["details"]))


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Check("python", sys.version_info >= (3, 11), found)


def _package(name: str) -> Check:
    import importlib.metadata

    try:
        return Check(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "not installed", f"pip install {name}")


def _settings() -> Check:
    """The file and the environment, as every command that runs something reads them."""
    try:
        configuration = load()
    except ConfigError as error:
        return Check("settings", False, error.message, "mend it; `pie-edge config init --stdout` shows every setting")
    there = "" if configuration.path.exists() else " (not there: all defaults)"
    return Check("settings", True, f"{configuration.path}{there}")


def _places() -> list[tuple[str, Path]]:
    from pie_edge.paths import cache_folder
    from pie_edge.weights.store import home

    return [("models", home()), ("cache", cache_folder())]


def _folder(name: str, path: Path) -> Check:
    """Whether it can be written, or made; and what is free on its disk."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        variable = {"models": "PIE_EDGE_HOME", "cache": "PIE_EDGE_CACHE"}[name]
        return Check(name, False, f"{path} can't be written", f"name another folder in {variable}")
    free = shutil.disk_usage(there).free
    remedy = "free some disk space: a model takes 0.1 to several GiB" if free < LOW_DISK else ""
    return Check(name, free >= LOW_DISK, f"{path}, {free / 2**30:.1f} GiB free", remedy)
