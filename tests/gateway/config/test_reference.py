"""The settings to be read: the TOML file says what is in force anyway, and the schema takes what is taken."""

import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from gateway.config.load import DECLARED, Settings, inspect
from gateway.config.reference import settings_schema, settings_toml

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
