"""Imported before the library, it has that read this machine's certificates once a server asks for them.

The library reads them twice while it is imported, 35 ms and 3 MiB, also for a gateway whose model servers have none:
https://github.com/aio-libs/aiohttp/blob/v3.14.5/aiohttp/connector.py#L928
"""

import ssl
import sys
from typing import Any

__all__ = ["read_ahead"]


class _Late(ssl.SSLContext):
    """A context that reads the certificates that it trusts before its first connection."""

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """A connection of an event loop."""
        self.read()
        return self.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """A connection of a socket."""
        self.read()
        return self.wrap_socket(*args, **kwargs)

    def read(self) -> None:
        """Be a context like any other."""
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        self.set_default_verify_paths()


_found: list[ssl.SSLContext] = []


def _later(self: ssl.SSLContext) -> None:
    _found.append(self)


def read_ahead() -> None:
    """Read them now: a model server has certificates, and whoever asks it first is not to wait for that."""
    for context in _found:
        if isinstance(context, _Late) and context.verify_mode is not ssl.CERT_NONE:
            context.read()


if "aiohttp" not in sys.modules:
    ssl.SSLContext.set_default_verify_paths = _later  # type: ignore[method-assign]
    try:
        import aiohttp  # noqa: F401
    finally:
        del ssl.SSLContext.set_default_verify_paths  # beneath it is the library's own
    for context in _found:
        context.__class__ = _Late
