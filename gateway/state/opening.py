"""From `STORE_URL` to the store that it names."""

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from gateway.core.ports import Store
from gateway.state.memory import MemoryStore
from gateway.state.redis import RedisStore
from gateway.state.sqlite import SqliteStore

__all__ = ["open_store"]

_OPTIONS = frozenset(
    {"db", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile", "client_name"}
)
"""What may follow a `?`; the library knows more, which would change what the store relies on."""
_FORMS = "must be sqlite:///file, redis://host:port/0, rediss://..., unix://... or memory://"


def open_store(url: str, *, prefix: str, timeout_ms: int) -> Store:
    """The store of this address, not yet opened; `ValueError`, in an operator's words, for one that names none."""
    timeout_s = timeout_ms / 1000
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(_FORMS) from None
    match parts.scheme:
        case "memory" if url == "memory://":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(_file(url), timeout_s=timeout_s)
        case "redis" | "rediss" if parts.hostname:
            _check_database(parts.path)
            return _redis(url, parts.query, prefix, timeout_s)
        case "unix" if parts.path:
            return _redis(url, parts.query, prefix, timeout_s)
        case _:
            raise ValueError(_FORMS)


def _file(url: str) -> Path:
    """Three slashes and a path that is relative to the working folder, or four for an absolute one."""
    rest = url.removeprefix("sqlite:///")
    if rest == url or not rest or "\0" in unquote(rest):
        raise ValueError("must name a file: sqlite:///toolgate.db, or sqlite:////var/lib/toolgate/toolgate.db")
    if "?" in rest or "#" in rest:
        raise ValueError("must be a file's path alone, without ? and #")
    if unquote(rest) == ":memory:":
        raise ValueError("must be memory:// for a store in memory")
    return Path(unquote(rest))


def _check_database(path: str) -> None:
    number = path.removeprefix("/")
    if number and not (number.isascii() and number.isdecimal()):
        raise ValueError("must end with the database's number, such as redis://host:6379/0")


def _redis(url: str, query: str, prefix: str, timeout_s: float) -> RedisStore:
    if not parse_qs(query, keep_blank_values=True).keys() <= _OPTIONS:
        raise ValueError(f"must have no other options than {', '.join(sorted(_OPTIONS))}")
    try:
        return RedisStore(url, prefix=prefix, timeout_s=timeout_s)
    except (ValueError, TypeError):  # the library's words may repeat the address with its password
        raise ValueError(_FORMS) from None
