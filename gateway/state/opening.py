"""From `STORE_URL` to the store that it names."""

from typing import TYPE_CHECKING

from gateway.core.addresses import STORE_FORMS, store_address
from gateway.core.ports import Store
from gateway.state.memory import MemoryStore
from gateway.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from gateway.state.redis_quotas import RedisQuotas

__all__ = ["open_quotas", "open_store"]


def open_store(url: str, *, prefix: str, timeout_ms: int, read_only: bool = False) -> Store:
    """The store of this address, not yet opened; `ValueError`, in an operator's words, for one that names none.

    `read_only`: nothing is written; of SQLite alone, as a Redis knows users that may not.
    """
    address, timeout_s = store_address(url), timeout_ms / 1000
    if address.kind == "memory":
        return MemoryStore()
    if address.file is not None:
        return SqliteStore(address.file, timeout_s=timeout_s, read_only=read_only)
    from gateway.state.redis import RedisStore  # here: whoever uses SQLite need not wait for its library

    try:
        return RedisStore(url, prefix=prefix, timeout_s=timeout_s)
    except (ValueError, TypeError):  # the library's words may repeat the address with its password
        raise ValueError(STORE_FORMS) from None


def open_quotas(url: str, *, prefix: str, timeout_ms: int) -> "RedisQuotas | None":
    """Where what keys use is counted for all, on connections of its own; None where every process counts alone."""
    if store_address(url).kind != "redis":
        return None
    from gateway.state.redis import RedisStore
    from gateway.state.redis_quotas import RedisQuotas

    return RedisQuotas(RedisStore(url, prefix=prefix, timeout_s=timeout_ms / 1000))
