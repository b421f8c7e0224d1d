"""Why an address cannot be listened on, in words for whoever set it."""

import errno
import socket
from typing import Literal

__all__ = ["cannot_listen"]

_FAULTS = {
    errno.EADDRINUSE: ("PORT", "port {port} on {host} is in use: stop the program that holds it, or take another one"),
    errno.EACCES: ("PORT", "port {port} on {host} may not be opened by this user: take one above 1023"),
    errno.EADDRNOTAVAIL: ("HOST", "{host} is not an address of this machine"),
}


def cannot_listen(error: OSError, whose: Literal["GATEWAY", "METRICS"], host: str, port: int) -> str | None:
    """The setting that is at fault, and how; `None` where none is."""
    if isinstance(error, socket.gaierror):
        return f"{whose}_HOST: {host} has no address: is it spelt right?"
    if error.errno not in _FAULTS:
        return None
    part, words = _FAULTS[error.errno]
    return f"{whose}_{part}: {words.format(host=host, port=port)}"
