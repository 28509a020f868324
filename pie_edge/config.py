"""Settings: one frozen object, from flags over environment variables over the configuration file over defaults.

Every setting is declared once, as a field of ``Settings`` or ``InstanceLimits``; the file format, the environment's
names, ``config init`` and ``docs/configuration.md`` all follow from there. Anything unknown or mistyped is refused by
name.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from pie_edge.backend_choice import BACKENDS
from pie_edge.config_values import (
    Kind,
    flag,
    hosts,
    named_folders,
    one_of,
    origins,
    seconds,
    secrets,
    size,
    text,
    whole,
)
from pie_edge.errors import ConfigError

PREFIX = "PIE_EDGE_"
NOT_SETTINGS = {
    *("PIE_EDGE_CONFIG", "PIE_EDGE_HOME", "PIE_EDGE_CACHE", "PIE_EDGE_DEBUG"),
    *("PIE_EDGE_URL", "PIE_EDGE_API_KEY"),
}
"""Variables with our prefix that say where things lie, how much is told or which server is meant, and are no settings."""
TEST_PREFIX = "PIE_EDGE_TEST_"
MOST_MEMORY = 16 * 2**40
"""More than any machine that this is for; a larger number is a slip."""


def _setting(default: Any, kind: Kind, doc: str) -> Any:
    return field(default=default, metadata={"kind": kind, "doc": doc})


@dataclass(frozen=True)
class InstanceLimits:
    """What one inferlet may use."""

    memory: int = _setting(
        512 * 2**20, size(32 * 2**20, 4 * 2**30), "Memory of one inferlet's Wasm instance, in bytes or with a unit."
    )
    time: float = _setting(600.0, seconds(0, 1e7), "Wall-clock time of one inferlet; 0 is no limit.")
    http: tuple[str, ...] = _setting(
        (),
        hosts(),
        "Hosts that inferlets may send HTTP requests to: HOST for its usual ports, HOST:PORT, or * for any.",
    )


@dataclass(frozen=True)
class ServeSettings:
    """What `pie-edge serve` listens on, and what it takes."""

    host: str = _setting("127.0.0.1", text(), "Address to listen on; another one than loopback needs an API key.")
    port: int = _setting(8642, whole(0, 65535), "Port to listen on; 0 takes a free one.")
    api_keys: tuple[str, ...] = _setting(
        (), secrets(), "Keys of which a client has to give one; without any, only this machine is served."
    )
    generations: int = _setting(
        0,
        whole(0, 10_000),
        "Requests worked on at once, the others wait their turn; 0 is 64, or what the machine's memory has room for.",
    )
    queue: int = _setting(1024, whole(0, 100_000), "Requests that may wait their turn; one more is refused.")
    body: int = _setting(16 * 2**20, size(1024, 2**30), "Longest body of a request, in bytes or with a unit.")
    drain: float = _setting(
        30.0, seconds(0, 1e6), "Seconds that running requests have when the server is asked to end."
    )
    keep: float = _setting(
        1800.0,
        seconds(0, 1e8),
        "Seconds that a response is kept, with its pages while there is room, for previous_response_id.",
    )
    cors: tuple[str, ...] = _setting(
        (), origins(), "Origins of web pages that may use the server from a browser, or * for all; none by default."
    )
    log: str = _setting(
        "human", one_of("human", "json"), "Form of the log on standard error; json is an object a line."
    )
    log_tokens: bool = _setting(
        False, flag(), "Log the ids of the tokens that each inferlet read and chose. They are what people wrote."
    )
    profile: str = _setting("", text(), "File to write a timeline to, for Perfetto; none by default.")


@dataclass(frozen=True)
class Settings:
    """All settings of a process. Sizes are bytes, times seconds."""

    model: str = _setting(
        "smollm2-135m", text(), "Model used when none is named: a built-in name, an imported one, or a file."
    )
    adapters: tuple[str, ...] = _setting(
        (),
        named_folders(),
        "Low-rank adapters (LoRA, as PEFT saves them) to load beside the model, each as NAME=FOLDER.",
    )
    backend: str = _setting("auto", one_of("auto", *BACKENDS), "Device interface; auto takes the best that works here.")
    device: str = _setting(
        "",
        text(),
        "Which of the backend's devices: an index or part of its name; empty is the first. Several, with commas between, get the "
        "model each; cuda:0,1 names the backend too.",
    )
    threads: int = _setting(
        0, whole(0, 1024), "CPU threads of the cpu backend; 0 is one for each core of this process, up to eight."
    )
    exact: bool = _setting(
        False, flag(), "Keep keys, values and activations in float32 instead of the device's best type."
    )
    tune: bool = _setting(
        True,
        flag(),
        "Measure the variants of kernels when a GPU is first used, for a second or two, and keep the fastest.",
    )
    memory: int = _setting(
        0, size(0, MOST_MEMORY), "Most that the backend may allocate in all; 0 is what the device has free."
    )
    context: int = _setting(
        0,
        whole(0, 2**31 - 1),
        "Tokens that a context may have; 0 leaves it to the model. Those that scale rope for more (LongRoPE) do so if asked.",
    )
    pooling: str = _setting(
        "auto",
        one_of("auto", "mean", "last", "cls", "none"),
        "How the vector of a text comes of its hidden states; auto is as the checkpoint declares, which most don't.",
    )
    generation_config: bool = _setting(
        True,
        flag(),
        "Sample as the checkpoint recommends (generation_config.json, general.sampling) where a request doesn't say how.",
    )
    kv_memory: int = _setting(
        0, size(0, MOST_MEMORY), "Memory of the KV pages; 0 sizes it from the model and what is free."
    )
    state_memory: int = _setting(
        0,
        size(0, MOST_MEMORY),
        "Memory of recurrent state, for models that have it; 0 sizes it from the model and what is free.",
    )
    page_size: int = _setting(16, one_of(8, 16, 32), "Tokens in a KV page.")
    park_memory: int = _setting(
        2**30,
        size(0, MOST_MEMORY),
        "Host memory for the KV pages of waiting inferlets; what it can't hold goes to disk.",
    )
    top_k: int = _setting(256, whole(1, 4096), "Candidates in a next-token distribution.")
    speculation_depth: int = _setting(1, one_of(0, 1), "Passes prepared ahead of an inferlet; 0 is none.")
    deterministic: bool = _setting(
        False, flag(), "Only what computes the same bits alone and in a batch; a backend that can't is refused."
    )
    max_instances: int = _setting(
        0,
        whole(0, 100_000),
        "Inferlets alive at once, one more is refused; 0 is 1,000, or what half of the machine's free memory has room for.",
    )
    eviction: str = _setting("lru", one_of("lru"), "Which cached KV pages go first when pages run out.")
    limits: InstanceLimits = field(default_factory=InstanceLimits)
    serve: ServeSettings = field(default_factory=ServeSettings)


TABLES: dict[str, type] = {"limits": InstanceLimits, "serve": ServeSettings}


@dataclass(frozen=True)
class Key:
    """One setting as users name it: ``page_size``, ``limits.memory``."""

    name: str
    kind: Kind
    default: Any
    doc: str

    @property
    def variable(self) -> str:
        return PREFIX + self.name.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """``--page-size``; a limit's is ``--max-time``."""
        if self.name == "limits.http":
            return "--allow-http"
        if self.name in ("adapters", "serve.api_keys"):
            return "--" + self.name.removeprefix("serve.").removesuffix("s").replace("_", "-")
        return "--" + self.name.replace("limits.", "max-").removeprefix("serve.").replace("_", "-")


def _keys(of: type, table: str = "") -> Iterator[Key]:
    members: tuple[Field[Any], ...] = fields(of)
    for member in members:
        if "kind" in member.metadata:
            yield Key(table + member.name, member.metadata["kind"], member.default, member.metadata["doc"])
    if of is Settings:
        for name, table_of in TABLES.items():
            yield from _keys(table_of, f"{name}.")


KEYS: dict[str, Key] = {key.name: key for key in _keys(Settings)}


@dataclass(frozen=True)
class Configuration:
    """The settings and, for each by name, where its value is from: ``default``, a file's path, a variable or a flag."""

    settings: Settings
    origins: Mapping[str, str]
    path: Path

    def value(self, name: str) -> Any:
        table, _, member = name.rpartition(".")
        return getattr(getattr(self.settings, table) if table else self.settings, member)


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """``PIE_EDGE_CONFIG``, else the platform's folder for settings."""
    if named := environment.get("PIE_EDGE_CONFIG"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        folder = Path(environment.get("APPDATA") or Path.home() / "AppData/Roaming")
    elif sys.platform == "darwin":
        folder = Path.home() / "Library/Application Support"
    else:
        folder = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return folder / "pie-edge" / "config.toml"


def load(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ, *, typed: bool = True
) -> Configuration:
    """The settings in force. ``flags`` are by setting name; those that are None weren't given. They were ``typed`` on a command
    line, or else a program gave them by these names.

    Raises ConfigError naming the setting, where it was set, what was found and what is accepted.
    """
    path = config_path(environment)
    values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
    origins = dict.fromkeys(KEYS, "default")
    layers = [_from_file(path, environment), _from_environment(environment), _from_flags(flags or {}, typed)]
    for layer in layers:
        for name, (value, origin) in layer.items():
            values[name], origins[name] = value, origin
    return Configuration(_settings(values), origins, path)


def _settings(values: Mapping[str, Any]) -> Settings:
    """``values`` are by setting name."""
    tables: dict[str, dict[str, Any]] = {"": {}, **{name: {} for name in TABLES}}
    for name, value in values.items():
        table, _, member = name.rpartition(".")
        tables[table][member] = value
    return Settings(**tables.pop(""), **{name: TABLES[name](**members) for name, members in tables.items()})


def settings_from(document: Mapping[str, Any]) -> Settings:
    """Settings that were written as JSON, by ``dataclasses.asdict``."""
    return _settings({name: KEYS[name].kind.parse(value) for name, value in _flatten(document)})


Layer = dict[str, tuple[Any, str]]


def _from_flags(flags: Mapping[str, Any], typed: bool) -> Layer:
    layer: Layer = {}
    for name, given in flags.items():
        if given is not None:
            key = KEYS.get(name)
            if key is None:
                raise ConfigError(f"{name} is no setting of pie-edge{_nearest(name, KEYS)}")
            value = key.kind.read(given) if isinstance(given, str) else given
            place = key.flag if typed else "settings"
            layer[name] = _checked(key, value, place), place
    return layer


def _from_environment(environment: Mapping[str, str]) -> Layer:
    by_variable = {key.variable: key for key in KEYS.values()}
    layer: Layer = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or variable.startswith(TEST_PREFIX):
            continue
        key = by_variable.get(variable)
        if key is None:
            known = [*by_variable, *NOT_SETTINGS]
            raise ConfigError(f"environment variable {variable} is no setting of pie-edge{_nearest(variable, known)}")
        layer[key.name] = _checked(key, key.kind.read(environment[variable]), variable), variable
    return layer


def _from_file(path: Path, environment: Mapping[str, str]) -> Layer:
    try:
        source = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if environment.get("PIE_EDGE_CONFIG"):
            raise ConfigError(f"PIE_EDGE_CONFIG names {path}, which doesn't exist; create it or unset it") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}; mend it or name another in PIE_EDGE_CONFIG") from None
    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    layer: Layer = {}
    for name, value in _flatten(document):
        place = f"{path}, line {_line_of(source, name)}"
        if name not in KEYS:
            raise ConfigError(f"{place}: {name} is no setting of pie-edge{_nearest(name, KEYS)}")
        layer[name] = _checked(KEYS[name], value, place), str(path)
    return layer


def _flatten(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted names. A table that is none of ours is one unknown setting, whatever it holds."""
    tables = {name.partition(".")[0] for name in KEYS if "." in name}
    for name, value in document.items():
        if name in tables and isinstance(value, dict):
            yield from ((f"{name}.{member}", inner) for member, inner in value.items())
        else:
            yield name, value


def _line_of(source: str, name: str) -> int:
    """The line that sets ``name``, found by reading the text again: tomllib keeps no places. 1 if written unusually."""
    table, _, member = name.rpartition(".")
    current = ""
    for number, line in enumerate(source.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([\w.\"-]+)\s*\]", line):
            current = header[1].strip('"')
            if current == name:
                return number
        assigned = re.match(r"\s*([\w.\"-]+)\s*=", line)
        if assigned and (current, assigned[1].strip('"')) in {(table, member), ("", name)}:
            return number
    return 1


def _checked(key: Key, value: object, place: str) -> Any:
    try:
        return key.kind.parse(value)
    except ValueError:
        found = "what isn't shown here" if key.kind.hidden else _shown(value)
        raise ConfigError(f"{place}: {key.name} is {found}; it must be {key.kind.expects}") from None


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else "; `pie-edge config init` writes a file with every setting"
