"""From `STORE_URL` to the store that it names."""

from gateway.core.addresses import STORE_FORMS, store_address
from gateway.core.ports import Store
from gateway.state.memory import MemoryStore
from gateway.state.redis import RedisStore
from gateway.state.sqlite import SqliteStore

__all__ = ["open_store"]


def open_store(url: str, *, prefix: str, timeout_ms: int) -> Store:
    """The store of this address, not yet opened; `ValueError`, in an operator's words, for one that names none."""
    address, timeout_s = store_address(url), timeout_ms / 1000
    if address.kind == "memory":
        return MemoryStore()
    if address.file is not None:
        return SqliteStore(address.file, timeout_s=timeout_s)
    try:
        return RedisStore(url, prefix=prefix, timeout_s=timeout_s)
    except (ValueError, TypeError):  # the library's words may repeat the address with its password
        raise ValueError(STORE_FORMS) from None
