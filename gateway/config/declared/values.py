"""Readers of single setting values: text in, the typed value out, `ValueError` in words an operator understands.

No message repeats the value: that is for the caller, who knows whether it is a secret.
"""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gateway.core.addresses import store_address
from gateway.core.origins import Authority, Origin, parse_authority, parse_origin
from gateway.core.rules import IgnoreRule, Rule
from strategies.mapping.mappings import MAPPINGS

__all__ = [
    "Reader",
    "aliases",
    "boolean",
    "call_modes",
    "choice",
    "cookies",
    "header_name",
    "host_name",
    "host_names",
    "http_url",
    "hundredths",
    "ignore_rules",
    "names",
    "networks",
    "number",
    "origins",
    "path_keys",
    "percent",
    "percents",
    "rules",
    "seconds",
    "secret",
    "shown",
    "shown_maps",
    "shown_modes",
    "shown_percent",
    "shown_size",
    "shown_store",
    "shown_url",
    "size",
    "store_url",
    "text",
    "tool_maps",
    "whole",
]

Reader = Callable[[str], Any]

CALL_MODES = ("auto", "count", "mend")
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
# No KB and MB: half of those who write them mean 1,000 and half 1,024.
_SIZE = re.compile(r"([0-9]{1,18}) ?(B|KiB|MiB|GiB)?", re.IGNORECASE)
_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_LONG_WORD = re.compile(r"[A-Za-z0-9]{16,}")
# Longer than anybody waits for a model: a number beyond it is a typing error.
_MAX_WAIT_S = 7 * 24 * 3600


def text(raw: str) -> str:
    """Any text."""
    return raw


def secret(raw: str) -> str:
    """Text that can stand in a header: printable ASCII without white space."""
    # A line break would end the header and begin another; what is pasted often ends in one.
    if not raw.isascii() or not raw.isprintable() or " " in raw:
        raise ValueError("must be printable ASCII without white space")
    return raw


def cookies(raw: str) -> str:
    """Text that can stand in a Cookie header."""
    if not raw.isascii() or not raw.isprintable():
        raise ValueError("must be printable ASCII, as a Cookie header holds them")
    return raw


def header_name(raw: str) -> str:
    """The name of a header."""
    if not _HEADER.fullmatch(raw):
        raise ValueError("must be the name of a header alone, such as X-Session-Id")
    return raw


def with_package(read_choice: Callable[[str], str], module: str, extra: str) -> Callable[[str], str]:
    """A choice between off and what needs packages of an extra; without them it stays off."""

    def read(raw: str) -> str:
        chosen = read_choice(raw)
        if chosen == "off":
            return chosen
        # `find_spec` raises where the package around the module is missing.
        with suppress(ImportError):
            if find_spec(module) is not None:
                return chosen
        raise ValueError(f"needs the extra: pip install '{extra}'")

    return read


def boolean(raw: str) -> bool:
    """A switch."""
    lowered = raw.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("must be true or false")


def choice(*allowed: str) -> Reader:
    """One of a few words."""

    def read(raw: str) -> str:
        lowered = raw.lower()
        if lowered not in allowed:
            raise ValueError("must be " + " or ".join((", ".join(allowed[:-1]), allowed[-1])))
        return lowered

    return read


def whole(low: int, high: int) -> Reader:
    """A whole number within bounds."""

    def read(raw: str) -> int:
        # Before `int`, which also takes `1_000`, other scripts' digits and as many of them as one likes.
        if not re.fullmatch(r"[+-]?[0-9]{1,15}", raw) or not low <= int(raw) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(raw)

    return read


def size(low: int, high: int = 1 << 40) -> Reader:
    """A number of bytes, plain or with KiB, MiB or GiB."""

    def read(raw: str) -> int:
        match = _SIZE.fullmatch(raw)
        if match is None:
            raise ValueError("must be a number of bytes, plain or with KiB, MiB or GiB")
        value = int(match[1]) * _UNITS[(match[2] or "B").lower()]
        if not low <= value <= high:
            raise ValueError(f"must be from {shown_size(low)} to {shown_size(high)}")
        return value

    return read


def seconds(*, zero: bool = False) -> Reader:
    """A number of seconds, fractions allowed."""
    words = f"must be a number of seconds, {'0 or more' if zero else 'more than 0'}, at most {_MAX_WAIT_S}"
    return _fitting(lambda value: 0 < value <= _MAX_WAIT_S or (zero and value == 0), words)


def hundredths(raw: str) -> int:
    """A share from 0 to 1 with at most two decimals, as whole hundredths."""
    return _hundredths(raw, 1)


def percent(raw: str) -> int:
    """A share from 0 to 100 with at most two decimals, as whole hundredths of a percent."""
    return _hundredths(raw, 100)


def percents(raw: str) -> tuple[int, ...]:
    """Rising shares, comma-separated, each as `percent` reads it."""
    steps = tuple(percent(part) for part in names(raw))
    # Nought as a first step would be a canary that nobody is in, waiting for requests that never come.
    if not steps or list(steps) != sorted(set(steps)) or steps[0] == 0:
        raise ValueError("must be rising shares in percent, such as 1,5,25,50,95")
    return steps


def number(low: float, high: float) -> Reader:
    """A number within bounds, fractions allowed."""
    return _fitting(lambda value: low <= value <= high, f"must be a number from {low:g} to {high:g}")


def networks(raw: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks, comma-separated."""
    try:
        return tuple(ip_network(part) for part in names(raw))
    except ValueError:
        raise ValueError("must be addresses or networks, such as 127.0.0.1,10.0.0.0/8") from None


def store_url(raw: str) -> str:
    """Where state is kept: a SQLite file, a Redis server, or this process alone."""
    store_address(raw)
    return raw


def host_name(raw: str) -> str:
    """A host name or an IP address, without a port."""
    try:
        return str(ip_address(raw.removeprefix("[").removesuffix("]")))
    except ValueError:
        if _HOST.fullmatch(raw) and not raw.replace(".", "").isdecimal():  # 300.1.1.1 is neither
            return raw
        raise ValueError("must be a host name or an IP address, without a port") from None


def host_names(raw: str) -> tuple[Authority, ...]:
    """Names under which the gateway is asked, comma-separated, each with a port or without."""
    found = []
    # An empty value is a fault too: who sets it expects something to be let in.
    for part in names(raw) or ("",):
        # An address of IPv6 without its brackets: its last group must not be taken for a port.
        name = f"[{part}]" if part.count(":") > 1 and "[" not in part else part
        authority = parse_authority(name)
        if authority is None:
            raise ValueError(
                "must be host names or IP addresses without scheme and path, such as gate.example,10.0.0.5:8080; "
                "a name that is not ASCII as xn--"
            )
        found.append(authority)
    return tuple(found)


def origins(raw: str) -> tuple[Origin, ...]:
    """Origins of pages, comma-separated; of a scheme other than http and https the host may be `*`."""
    found = []
    for part in names(raw) or ("",):
        is_any = part.endswith("://*")
        origin = parse_origin(part.removesuffix("*") + "any" if is_any else part)
        # Any page of the web is never meant; extensions of editors have hosts that are made anew with each install.
        if origin is None or not origin.host or (is_any and origin.is_web):
            raise ValueError(
                "must be origins as scheme://host or scheme://host:port without a path, such as "
                "https://chat.example,http://localhost:3000; of schemes other than http and https the host may be *, "
                "as in vscode-webview://*"
            )
        found.append(Origin(scheme=origin.scheme, host="*") if is_any else origin)
    return tuple(found)


def http_url(raw: str) -> str:
    """An http or https address with a host and without credentials, query and fragment; no slash at its end."""
    if not raw.isprintable() or " " in raw:
        raise ValueError("must not hold white space")
    try:
        parts = urlsplit(raw)
        port = parts.port
    except ValueError:
        raise ValueError("must be an http:// or https:// address with a valid host and port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("must be an http:// or https:// address with a host, such as http://127.0.0.1:8000/v1")
    # Addresses are shown in logs and on pages, and this part of them is a password.
    if "@" in parts.netloc:
        raise ValueError("must not hold credentials: put the key into UPSTREAM_API_KEY")
    if parts.query or parts.fragment:
        raise ValueError("must not hold a query or a fragment")
    return raw.rstrip("/")


def path_keys(url: str) -> tuple[str, ...]:
    """The parts of an address's path that are keys: some gateways take theirs there.

    A key is a long run of letters and digits mixed; names of deployments and dates are short words between dashes.
    """
    return tuple(dict.fromkeys(word for word in _LONG_WORD.findall(urlsplit(url).path) if _is_mixed(word)))


def _is_mixed(word: str) -> bool:
    return any(letter.isdigit() for letter in word) and any(letter.isalpha() for letter in word)


def shown_url(url: str) -> str:
    """The address without the keys in its path."""
    for key in path_keys(url):
        url = url.replace(key, "********")
    return url


def names(raw: str) -> tuple[str, ...]:
    """A comma-separated list."""
    return tuple(part for part in (piece.strip() for piece in raw.split(",")) if part)


def rules(raw: str) -> tuple[Rule, ...]:
    """`glob=strategy` or `glob=strategy:dialect`, comma-separated."""
    return tuple(_rule(part) for part in names(raw))


def tool_maps(raw: str) -> tuple[tuple[str, str], ...]:
    """A mapping for all models, or `glob=mapping`, comma-separated."""
    pairs = []
    for part in names(raw):
        # From the right: a glob may hold the sign, the name of a mapping does not.
        pattern, equals, name = part.rpartition("=")
        if name.strip() not in (*MAPPINGS, "none") or (equals and not pattern.strip()):
            raise ValueError(f"must be {' or '.join(sorted(MAPPINGS))}, or a list such as claude*=claude_text_editor")
        pairs.append((pattern.strip() or "*", name.strip()))
    return tuple(pairs)


def shown_maps(value: tuple[tuple[str, str], ...]) -> str:
    """What `tool_maps` read, in the words that would set it."""
    return ",".join(f"{pattern}={name}" for pattern, name in value)


def aliases(raw: str) -> tuple[tuple[str, str], ...]:
    """`alias=tool`, comma-separated."""
    pairs = [part.partition("=") for part in names(raw)]
    if any(not alias.strip() or not tool.strip() for alias, _, tool in pairs):
        raise ValueError("must be a list such as readFile=read_file,Bash=execute_command")
    return tuple((alias.strip(), tool.strip()) for alias, _, tool in pairs)


def call_modes(raw: str) -> tuple[tuple[str, str], ...]:
    """A mode for all models, or `glob=mode`, comma-separated."""
    pairs = []
    for part in names(raw):
        pattern, equals, mode = part.rpartition("=")
        if mode.strip().lower() not in CALL_MODES or (equals and not pattern.strip()):
            raise ValueError("must be auto, count or mend, or a list such as gpt-4o*=count,*=mend")
        pairs.append((pattern.strip() or "*", mode.strip().lower()))
    if not pairs:
        raise ValueError("must be auto, count or mend, or a list such as gpt-4o*=count,*=mend")
    return tuple(pairs)


def shown_modes(value: tuple[tuple[str, str], ...]) -> str:
    """What `call_modes` read, in the words that would set it."""
    if len(value) == 1 and value[0][0] == "*":
        return value[0][1]
    return shown_maps(value)


def ignore_rules(raw: str) -> tuple[IgnoreRule, ...]:
    """`dialect:tool=YYYY-MM-DD`, comma-separated."""
    return tuple(_ignore_rule(part) for part in names(raw))


def shown(value: Any) -> str:
    """A typed value in the words that would set it."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(str(item) for item in value)
        case _:
            return str(value)


def shown_percent(value: int | tuple[int, ...]) -> str:
    """What `percent` or `percents` read, in percent."""
    return ",".join(f"{one / 100:g}" for one in (value if isinstance(value, tuple) else (value,)))


def shown_store(value: str) -> str:
    """Where state is kept, without the password."""
    parts: SplitResult = urlsplit(value)
    if parts.password is None:
        return value
    # The last one: a password may hold the sign as it is.
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}:********@{place}").geturl()


def shown_size(value: int) -> str:
    """Bytes in the largest unit that divides them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value and value % factor == 0:
            return f"{value // factor} {unit}"
    return str(value)


def _fitting(fits: Callable[[float], bool], words: str) -> Reader:
    """A number that fits: one that is none, or infinite, does not."""

    def read(raw: str) -> float:
        try:
            value = float(raw)
        except ValueError:
            # Every comparison with it is false, so it fits nowhere.
            value = math.nan
        if not fits(value):
            raise ValueError(words)
        return value

    return read


def _hundredths(raw: str, most: int) -> int:
    words = f"must be a number from 0 to {most} with at most two decimals"
    try:
        # As a decimal: in binary 0.07 times 100 is no whole number.
        value = Decimal(raw)
    except InvalidOperation:
        raise ValueError(words) from None
    if not value.is_finite() or not 0 <= value <= most or value * 100 != int(value * 100):
        raise ValueError(words)
    return int(value * 100)


def _rule(part: str) -> Rule:
    pattern, equals, target = part.partition("=")
    strategy, colon, dialect = target.strip().partition(":")
    if not equals or not pattern.strip() or not _NAME.fullmatch(strategy):
        raise ValueError("must be a list such as qwen*=xml_prompt,gpt-*=native,*=recovery")
    if colon and not _NAME.fullmatch(dialect):
        raise ValueError("must name a dialect after the colon, such as qwen*=xml_prompt:hermes")
    return Rule(pattern=pattern.strip(), strategy=strategy, dialect=dialect or None)


def _ignore_rule(part: str) -> IgnoreRule:
    what, equals, day = part.partition("=")
    dialect, colon, tool = what.strip().partition(":")
    try:
        until = date.fromisoformat(day.strip())
    except ValueError:
        raise ValueError("must be a list such as json_block:read_*=2027-01-31") from None
    if not equals or not colon or not dialect or not tool:
        raise ValueError("must be a list such as json_block:read_*=2027-01-31")
    return IgnoreRule(dialect=dialect, tool=tool, until=until)
