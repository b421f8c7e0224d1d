"""Values of settings as they are read, and as they are shown."""

import hashlib
import re
import tomllib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.declarations import Settings, describe
from gateway.config.declared.keys import KeyRing
from gateway.config.declared.setting import Reach
from gateway.config.declared.values import path_keys, shown_url
from gateway.config.load import DECLARED, inspect, within_reach
from gateway.config.reference import settings_schema, settings_toml
from gateway.telemetry.redaction import Redactor

KEY = "a1B2c3D4e5F6g7H8i9J0"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://gateway.example/v1/{KEY}/openai", "https://gateway.example/v1/********/openai"),
        (f"https://gateway.example/sk-{KEY}/v1", "https://gateway.example/sk-********/v1"),
        (f"https://{KEY}.example/v1", f"https://{KEY}.example/v1"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        (
            "https://example.org/openai/deployments/gpt-4o-mini-2024-07-18",
            "https://example.org/openai/deployments/gpt-4o-mini-2024-07-18",
        ),
        ("https://example.org/internationalization/v1", "https://example.org/internationalization/v1"),
    ],
)
def test_a_key_in_an_address_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_key_in_the_address_of_the_model_server_is_a_secret() -> None:
    url = f"https://gateway.example/v1/{KEY}/openai"
    settings = Settings(upstream_url=url)
    assert path_keys(url) == (KEY,)
    assert KEY not in repr(describe(settings))
    assert KEY not in Redactor(settings.secrets()).text(f"cannot connect to {url}")


# --- How far a changed setting reaches: what its row says is what a reload does, and what the operator reads


DEPLOY = (Path(__file__).parents[4] / "deploy" / "README.md").read_text()

BY_NEW_PROCESSES = {
    *("CANARY_SALT", "GATEWAY_TRACES", "LOG_FORMAT"),
    *("METRICS_HOST", "METRICS_LABEL_CAP", "METRICS_MODELS", "METRICS_PORT", "METRICS_TOOLS"),
    *("STORE_PREFIX", "STORE_TIMEOUT_MS", "STORE_URL"),
}

BY_A_START = {"GATEWAY_HOST", "GATEWAY_PID_FILE", "GATEWAY_PORT", "GATEWAY_WORKERS", "METRICS_SD_FILE"}

NAMES = {entry.name for entry in DECLARED}


@pytest.mark.parametrize(
    ("step", "waiting"), [("reload", BY_NEW_PROCESSES | BY_A_START), ("restart", BY_A_START), ("start", set())]
)
def test_a_step_changes_the_settings_that_it_reaches_and_names_the_others(step: Reach, waiting: set[str]) -> None:
    before = Settings()
    others: dict[str, Any] = {entry.attribute: object() for entry in DECLARED}
    changed = attrs.evolve(before, **others)
    after, named = within_reach(changed, before, step)
    kept = {
        entry.name for entry in DECLARED if getattr(after, entry.attribute) is not getattr(changed, entry.attribute)
    }
    assert kept == set(named) == waiting
    assert all(
        getattr(after, each.attribute) is getattr(before, each.attribute) for each in DECLARED if each.name in kept
    )


def test_what_is_as_it_was_waits_for_nothing() -> None:
    assert within_reach(Settings(), Settings(), "reload") == (Settings(), [])


def test_the_operator_is_told_which_settings_need_more_than_a_reload() -> None:
    _, _, told = DEPLOY.partition("**Settings that need new processes**")
    restart, _, start = told.partition("\n\n")[0].partition("A restart is needed for")
    assert (named(restart), named(start)) == (BY_NEW_PROCESSES, BY_A_START)


def named(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z_]+)`", text)) & NAMES


# --- Keys: what opens the gateway, until when, and that nothing shows them


NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def ring(value: str, content: str = "") -> KeyRing:
    return KeyRing.from_setting(value, read_file=lambda path: content)


def test_a_listed_key_opens_and_another_does_not():
    keys = ring("alpha, beta")
    assert keys.check("alpha", NOW)
    assert keys.check("beta", NOW)
    for token in ("", "alph", "alphabeta", "alpha,beta", "ALPHA", " alpha", "\ud800", "alpha\0"):
        assert not keys.check(token, NOW)


def test_an_empty_setting_is_an_open_ring_that_accepts_no_token():
    assert ring("").is_open
    assert not ring("").check("", NOW)


def test_a_hashed_key_opens_to_its_plain_text_only():
    digest = hashlib.sha256(b"alpha").hexdigest()
    keys = ring(f"sha256:{digest.upper()}")
    assert keys.check("alpha", NOW)
    assert not keys.check(digest, NOW)
    assert not keys.check(f"sha256:{digest}", NOW)


def test_a_key_file_has_comments_blank_lines_and_ends_of_life():
    keys = ring(
        "@keys",
        "# team keys\n\nalpha\r\n  beta expires=2026-11-18\nold expires=2026-11-17\nsoon expires=2026-11-18T12:00:00\n"
        "zoned\texpires=2026-11-18T13:00:00+02:00\nlater expires=2026-11-18T14:30:00+02:00  \n",
    )
    assert [keys.check(word, NOW) is not None for word in ("alpha", "beta", "old", "soon", "zoned", "later")] == [
        *(True, True, False, False, False, True)
    ]
    assert not keys.check("beta", NOW + timedelta(hours=12))
    assert keys.check("beta", NOW.astimezone(timezone(timedelta(hours=5))))


@pytest.mark.parametrize(
    "content",
    [
        "canary expires=tomorrow\n",
        "canary expires=2026-13-01\n",
        "canary expires=9999-12-31\n",
        "canary expires=2026-01-01 and more\n",
        "canary two\n",
        "sha256:canary\n",
        "canaré\n",
    ],
)
def test_a_faulty_line_is_named_by_number_and_not_repeated(content):
    with pytest.raises(ValueError, match="line 2: ") as caught:
        ring("@keys", f"good\n{content}")
    assert "canar" not in str(caught.value)


def test_every_faulty_line_is_named():
    with pytest.raises(ValueError, match=r"line 1: .*line 3: "):
        ring("@keys", "a b\nfine\nc d\n")


def test_a_ring_shows_neither_keys_nor_hashes():
    keys = ring("alpha")
    assert "alpha" not in repr(keys)
    assert hashlib.sha256(b"alpha").hexdigest()[:8] not in repr(keys) + repr(keys.keys[0])


@given(st.text(max_size=60))
def test_any_file_gives_a_ring_or_a_value_error(content):
    try:
        keys = ring("@keys", content)
    except ValueError:
        return
    assert not keys.check(content + "x", NOW)


# --- The settings to be read: the TOML file says what is in force anyway, and the schema takes what is taken


UNCOMMENTED = re.compile(r"^# (?=[A-Z_]+ = )", re.MULTILINE)

SCHEMA = settings_schema()

TABLES = """
[upstreams.local]
url = "http://127.0.0.1:8000/v1"
models = ["qwen*"]
idle_timeout_s = 30

[upstreams.cloud]
url = "https://models.example"
kind = "anthropic"
api_key_file = "key"

[[models]]
match = "qwen*"
upstream = "local"
fallback = "cloud"
strategy = "xml_prompt"
"""


def read(tmp_path: Path, content: str) -> tuple[Settings, list[str]]:
    file = tmp_path / "toolgate.toml"
    file.write_text(content)
    return inspect({"GATEWAY_CONFIG": str(file), "UPSTREAM_URL": "http://127.0.0.1:1/v1"})


def test_the_file_has_every_setting_with_what_is_in_force(tmp_path: Path) -> None:
    named = UNCOMMENTED.sub("", settings_toml())
    document = tomllib.loads(named)
    assert set(document) == {entry.name for entry in DECLARED} - {"GATEWAY_CONFIG", "GATEWAY_ENV_FILE"}
    settings, faults = read(tmp_path, named)
    assert faults == []
    changed = {entry.name for entry in DECLARED if getattr(settings, entry.attribute) != entry.default}
    assert changed == {"GATEWAY_CONFIG", "UPSTREAM_URL"}


def test_the_file_as_it_is_printed_sets_nothing(tmp_path: Path) -> None:
    assert tomllib.loads(settings_toml()) == {}
    assert read(tmp_path, settings_toml())[1] == []


def test_the_tables_of_the_file_are_read(tmp_path: Path) -> None:
    tables = settings_toml().partition("# Model servers")[2]
    settings, faults = read(
        tmp_path, re.sub(r"^# (?=\[|[a-z_]+ = )", "", tables.partition("\n")[2], flags=re.MULTILINE)
    )
    assert faults == []
    assert [each.name for each in settings.routes.upstreams] == ["local"]
    assert [rule.match for rule in settings.routes.models] == ["qwen*"]


def test_the_schema_is_one_and_takes_what_is_read() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    document = tomllib.loads(UNCOMMENTED.sub("", settings_toml()) + TABLES)
    jsonschema.validate({key: value for key, value in document.items() if value != ""}, SCHEMA)
    jsonschema.validate({"gateway_port": 9000}, SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"GATEWAY_PROT": 1},
        {"TRANSFORM_MODE": "some"},
        {"GATEWAY_PORT": True},
        {"models": [{"upstream": "local"}]},
        {"upstreams": {"local": {"models": ["qwen*"]}}},
    ],
)
def test_the_schema_refuses_what_is_a_fault(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)
