"""Settings: where they come from, which wins, and how a wrong one is refused."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.cli.config import _as_object, reference, template
from pie_edge.config import KEYS, TABLES, Settings, config_path, load, settings_from
from pie_edge.config_values import parse_size, show_size
from pie_edge.errors import ConfigError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def environment(tmp_path: Path, text: str, **more: str) -> dict[str, str]:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return {"PIE_EDGE_CONFIG": str(path), **more}


def test_nothing_given_means_the_defaults_of_the_dataclass(tmp_path: Path) -> None:
    found = load(environment={"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path), "HOME": str(tmp_path)})
    assert found.settings == Settings()
    assert set(found.origins.values()) == {"default"}


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    variables = environment(
        tmp_path, 'model = "a"\npage_size = 8\nthreads = 3\n', PIE_EDGE_MODEL="b", PIE_EDGE_PAGE_SIZE="32"
    )
    found = load({"model": "c", "backend": None}, variables)
    assert (found.settings.model, found.settings.page_size, found.settings.threads) == ("c", 32, 3)
    assert found.origins["model"] == "--model"
    assert found.origins["page_size"] == "PIE_EDGE_PAGE_SIZE"
    assert found.origins["threads"] == variables["PIE_EDGE_CONFIG"]
    assert found.origins["backend"] == "default"


def test_limits_are_a_table_and_take_sizes_with_units(tmp_path: Path) -> None:
    found = load(environment=environment(tmp_path, '[limits]\nmemory = "64 MiB"\ntime = 2\n'))
    assert found.settings.limits == TABLES["limits"](memory=64 * 2**20, time=2.0)


def test_a_byte_order_mark_before_the_settings_is_no_part_of_them(tmp_path: Path) -> None:
    assert load(environment=environment(tmp_path, "\ufeffthreads = 3\n")).settings.threads == 3


def test_a_device_that_is_a_number_stays_text_in_the_environment(tmp_path: Path) -> None:
    assert load(environment=environment(tmp_path, "", PIE_EDGE_DEVICE="0")).settings.device == "0"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\npage_sise = 8\n", "line 2: page_sise is no setting of pie-edge; did you mean page_size?"),
        ("page_size = 12\n", "line 1: page_size is 12; it must be 8, 16 or 32"),
        ('kv_memory = "1024 TiB"\n', 'kv_memory is "1024 TiB"; it must be a size such as "512 MiB", from 0 to 16 TiB'),
        ('# note\npage_size = "8"\n', 'line 2: page_size is "8"; it must be 8, 16 or 32'),
        ("page_size = 8.0\n", "line 1: page_size is 8.0; it must be 8, 16 or 32"),
        ("exact = 1\n", "line 1: exact is 1; it must be true or false"),
        ("threads = true\n", "line 1: threads is true; it must be a whole number from 0 to 1024"),
        ("threads = -1\n", "line 1: threads is -1;"),
        (
            'backend = "cdua"\n',
            'line 1: backend is "cdua"; it must be "auto", "cuda", "metal", "vulkan", "wgpu" or "cpu"',
        ),
        ("max_instances = -1\n", "line 1: max_instances is -1; it must be a whole number from 0 to 100000"),
        ("top_k = 0\n", "line 1: top_k is 0; it must be"),
        ("[limits]\ntime = nan\n", "line 2: limits.time is nan;"),
        ('[limits]\n\nmemory = "many"\n', 'line 3: limits.memory is "many"; it must be a size such as "512 MiB"'),
        ('limits.memory = "1 B"\n', 'line 1: limits.memory is "1 B"; it must be a size'),
        ("[limits]\nmemmory = 1\n", "line 2: limits.memmory is no setting of pie-edge; did you mean limits.memory?"),
        ("limits = 3\n", "line 1: limits is no setting of pie-edge"),
        ("[backend]\nname = 1\n", "line 1: backend is {'name': 1}; it must be"),
        ("[[limits]]\n", "line 1: limits is no setting"),
        (
            "[zzz]\nq = 1\n",
            "line 1: zzz is no setting of pie-edge; `pie-edge config init` writes a file with every setting",
        ),
        ("model = \n", "is not valid TOML: Invalid value (at line 1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_the_remedy(text: str, told: str, tmp_path: Path) -> None:
    variables = environment(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(environment=variables)
    assert told in refused.value.message
    assert variables["PIE_EDGE_CONFIG"] in refused.value.message


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PIE_EDGE_BAKEND", "cpu", "PIE_EDGE_BAKEND is no setting of pie-edge; did you mean PIE_EDGE_BACKEND?"),
        ("PIE_EDGE_THREADS", "two", 'PIE_EDGE_THREADS: threads is "two"; it must be a whole number from 0 to 1024'),
        ("PIE_EDGE_EXACT", "yes", 'PIE_EDGE_EXACT: exact is "yes"; it must be true or false'),
        ("PIE_EDGE_LIMITS_TIME", "-1", "PIE_EDGE_LIMITS_TIME: limits.time is -1; it must be a number of seconds"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_refused_by_name(variable: str, value: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(environment=environment(tmp_path, "", **{variable: value}))
    assert told in refused.value.message


def test_a_wrong_flag_is_refused_by_the_flags_name() -> None:
    with pytest.raises(ConfigError, match=r"^--max-time: limits\.time is"):
        load({"limits.time": "soon"}, {})
    with pytest.raises(ConfigError, match=r'^--backend: backend is "gpu"; it must be "auto"'):
        load({"backend": "gpu"}, {})


@pytest.mark.parametrize(
    "hosts", [["example.org"], ["a.b-c.d:80", "localhost:8080", "[::1]:3000", "127.0.0.1", "*", "*:443"], []]
)
def test_allowed_hosts_are_a_list_and_in_a_variable_have_commas_between_them(hosts: list[str], tmp_path: Path) -> None:
    from_file = load(environment=environment(tmp_path, f"[limits]\nhttp = {json.dumps(hosts)}"))
    from_variable = load(environment=environment(tmp_path, "", PIE_EDGE_LIMITS_HTTP=" , ".join(hosts)))
    assert from_file.settings.limits.http == from_variable.settings.limits.http == tuple(hosts)


@pytest.mark.parametrize("host", ["", "http://x", "x/y", "a b", "x:", "x:port", "*.org", "u@x", "-x"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"limits\.http is .*; it must be a list of hosts such as"):
        load({"limits.http": [host]}, {})


def test_a_file_named_but_missing_is_refused_and_an_unreadable_one_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which doesn't exist"):
        load(environment={"PIE_EDGE_CONFIG": str(tmp_path / "none.toml")})
    (tmp_path / "latin.toml").write_bytes(b'model = "\xe9"')
    with pytest.raises(ConfigError, match="can't be read"):
        load(environment={"PIE_EDGE_CONFIG": str(tmp_path / "latin.toml")})
    with pytest.raises(ConfigError, match="can't be read"):
        load(environment={"PIE_EDGE_CONFIG": str(tmp_path)})


def test_variables_that_only_say_where_things_lie_are_no_settings(tmp_path: Path) -> None:
    names = ["PIE_EDGE_HOME", "PIE_EDGE_CACHE", "PIE_EDGE_DEBUG", "PIE_EDGE_TEST_MODELS"]
    found = load(environment=environment(tmp_path, "", **dict.fromkeys(names, "x")))
    assert found.settings == Settings()


def test_the_named_file_is_used_and_else_the_platforms_folder(tmp_path: Path) -> None:
    assert config_path({"PIE_EDGE_CONFIG": str(tmp_path / "c.toml")}) == tmp_path / "c.toml"
    assert config_path({}).parts[-2:] == ("pie-edge", "config.toml")


def test_the_written_template_changes_nothing_and_uncommented_it_is_the_defaults(tmp_path: Path) -> None:
    assert tomllib.loads(template()) == {table: {} for table in TABLES}
    lines = [
        line.removeprefix("#") if line.startswith("#") and not line.startswith("# ") else line
        for line in template().splitlines()
    ]
    found = load(environment=environment(tmp_path, "\n".join(lines)))
    assert found.settings == Settings()
    assert "default" not in found.origins.values()


def test_every_field_is_a_setting_with_a_kind_that_accepts_its_default() -> None:
    names = {member.name for member in fields(Settings)} - TABLES.keys()
    for table, of in TABLES.items():
        names |= {f"{table}.{member.name}" for member in fields(of)}
    assert KEYS.keys() == names
    for key in KEYS.values():
        assert key.kind.parse(tomllib.loads(f"x = {key.kind.write(key.default)}")["x"]) == key.default


def test_settings_go_to_the_engine_s_process_as_json_and_come_back_the_same() -> None:
    changed = {
        "limits.http": ["example.org"],
        "adapters": ["poet=x"],
        "serve.port": 1,
        "limits.time": 2.5,
        "kv_memory": 7,
    }
    settings = load(changed, {}).settings
    assert settings_from(json.loads(json.dumps(asdict(settings)))) == settings


def test_keys_of_the_api_are_never_shown() -> None:
    configuration = load({"serve.api_keys": ["sesame"]}, {})
    assert "sesame" not in KEYS["serve.api_keys"].kind.write(configuration.value("serve.api_keys"))
    assert "sesame" not in str(_as_object(configuration))


@pytest.mark.parametrize(
    ("flags", "environment", "file"),
    [
        ({"serve.api_keys": ["sesame", "x y"]}, {}, ""),
        ({}, {"PIE_EDGE_SERVE_API_KEYS": "sesame,schlüssel"}, ""),
        ({}, {}, '[serve]\napi_keys = ["sesame", "x y"]\n'),
        ({}, {}, '[serve]\napi_keys = "sesame"\n'),
    ],
)
def test_keys_that_are_refused_are_not_shown_either(
    flags: dict[str, Any], environment: dict[str, str], file: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(file)
    with pytest.raises(
        ConfigError, match=r"serve\.api_keys is what isn't shown here; it must be a list of keys"
    ) as failed:
        load(flags, {**environment, "PIE_EDGE_CONFIG": str(path)})
    assert "sesame" not in failed.value.message


def test_a_setting_that_there_isn_t_is_refused_from_a_program_too() -> None:
    with pytest.raises(ConfigError, match="bogus is no setting of pie-edge"):
        load({"bogus": 1}, {})


def test_the_reference_page_is_the_one_generated_from_the_settings() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert reference() in page, "run scripts/generate-docs"


@given(st.integers(0, 2**50))
def test_a_size_written_is_read_back_exactly(nbytes: int) -> None:
    assert parse_size(show_size(nbytes)) == nbytes


@pytest.mark.parametrize("text", ["size", "MiB", "1 mib x", "1.2.3", "-1", "1e3", "١"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_size(text)
