"""Where settings come from besides the process environment: an env file, a TOML file, files that hold a secret."""

import re
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["as_text", "parse_env_file", "parse_toml", "read_text"]

_MAX_FILE_BYTES = 1 << 20
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")


def read_text(path: str) -> str:
    """A small UTF-8 file whole; raises `ValueError` in words."""
    try:
        with Path(path).open("rb") as file:
            # One byte more than may be: a path to a device would otherwise be read for ever.
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or 'unreadable'}") from error
    except ValueError as error:
        raise ValueError("is not a usable path") from error
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"{path} is larger than 1 MiB")
    try:
        # Editors on Windows put a byte order mark in front.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error


def parse_env_file(content: str, faults: list[str], *, path: str) -> dict[str, str]:
    """`KEY=value` lines; a value may stand in quotes; blank lines and `#` lines are skipped."""
    values: dict[str, str] = {}
    # `splitlines` would end a line at characters that may stand in a value.
    for number, line in enumerate(content.split("\n"), start=1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        match = _LINE.fullmatch(entry)
        if match is None:
            faults.append(f"{path} line {number}: must be KEY=value")
            continue
        name = match[1]
        if name in values:
            faults.append(f"{path} line {number}: {name} is set twice")
        values[name] = _unquoted(match[2].strip())
    return values


def parse_toml(
    content: str, faults: list[str], *, path: str, tables: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, Any]]:
    """Top-level keys, in lower or upper case, as the text an environment variable would hold; `tables` as they are."""
    try:
        document = tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # a number may be too long for Python itself
        faults.append(f"{path}: is not valid TOML: {error}")
        return {}, {}
    values: dict[str, str] = {}
    kept = {key: document.pop(key) for key in tables if key in document}
    for key, value in document.items():
        name = key.upper()
        if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value)):
            faults.append(f"{path}: the table [{key}] is not one of a configuration")
        elif name in values:
            faults.append(f"{path}: {name} is set twice")
        else:
            try:
                values[name] = as_text(value)
            except ValueError as error:
                faults.append(f"{path}: {name} {error}")
    return values, kept


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def as_text(value: Any) -> str:
    """A TOML value as the text that would set it; `ValueError` for one that no text sets."""
    match value:
        # Before numbers, as to Python it is one.
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list():
            return ",".join(as_text(item) for item in value)
        case _:
            raise ValueError("must be text, a number, true or false, or a list of them")
