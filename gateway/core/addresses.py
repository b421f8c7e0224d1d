"""What `STORE_URL` names: taken apart in one place, for who checks the settings and for who opens the store."""

import re
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import frozen

__all__ = ["STORE_FORMS", "StoreAddress", "store_address"]

STORE_FORMS = "must be sqlite:///file, redis://host:port/0, rediss://..., unix://... or memory://"
_OPTIONS = frozenset(
    {"db", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile", "client_name"}
)
"""What may follow a `?`; the library knows more, which would change what the store relies on."""


@frozen(kw_only=True)
class StoreAddress:
    """Which store is meant, and where the file of one in a file is."""

    kind: Literal["memory", "sqlite", "redis"]
    file: Path | None = None


def store_address(url: str) -> StoreAddress:
    """What the address names; `ValueError`, in words that do not repeat it, for one that names no store."""
    try:
        parts = urlsplit(url)
        # Python reads the port only when it is asked for it, and fails then.
        _ = parts.port
    except ValueError:
        # Without the cause: its words repeat the address, in which a password may stand.
        raise ValueError(STORE_FORMS) from None
    match parts.scheme:
        case "memory" if url == "memory://":
            return StoreAddress(kind="memory")
        case "sqlite":
            return StoreAddress(kind="sqlite", file=_file(url))
        case "redis" | "rediss" if parts.hostname:
            # redis-py passes over a path that is no number without a word, and takes database 0.
            if not re.fullmatch(r"(?:/[0-9]*)?", parts.path):
                raise ValueError("must end with the database's number, such as redis://host:6379/0")
        case "unix" if parts.path:
            pass
        case _:
            raise ValueError(STORE_FORMS)
    # By default `parse_qs` leaves out an option with nothing behind its `=`, and so lets it through.
    if not parse_qs(parts.query, keep_blank_values=True).keys() <= _OPTIONS:
        raise ValueError(f"must have no other options than {', '.join(sorted(_OPTIONS))}")
    return StoreAddress(kind="redis")


def _file(url: str) -> Path:
    """Three slashes and a path that is relative to the working folder, or four for an absolute one."""
    rest = url.removeprefix("sqlite:///")
    path = unquote(rest)
    if rest == url or not rest or "\0" in path:
        raise ValueError("must name a file: sqlite:///toolgate.db, or sqlite:////var/lib/toolgate/toolgate.db")
    # SQLite's own URIs have options there, which would be a part of the file's name here: https://sqlite.org/uri.html
    if "?" in rest or "#" in rest:
        raise ValueError("must be a file's path alone, without ? and #")
    if path == ":memory:":
        raise ValueError("must be memory:// for a store in memory")
    return Path(path)
