"""The channel of a worker: a socket pair, one JSON document per line in both directions."""

import json
import socket
from contextlib import suppress
from typing import Any

from attrs import define, field

__all__ = ["Channel", "emptied"]


@define(eq=False)
class Channel:
    """One end of it; it never blocks."""

    _socket: socket.socket
    is_closed: bool = field(default=False, init=False)
    """The other end is."""
    _received: bytearray = field(factory=bytearray, init=False)

    def __attrs_post_init__(self) -> None:
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """What to wait for, until there are words."""
        return self._socket.fileno()

    def say(self, **word: Any) -> None:
        """Send one document; that nobody is there, or reads, is found out by the silence."""
        with suppress(OSError):
            # One that reads no more must not hold up the supervisor, who has others to look after.
            self._socket.send(json.dumps(word, separators=(",", ":")).encode() + b"\n")

    def words(self) -> list[dict[str, Any]]:
        """Every whole document that has come."""
        data, self.is_closed = emptied(self._socket)
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """The other end is told."""
        self._socket.close()


def emptied(sock: socket.socket) -> tuple[bytes, bool]:
    """What has come, and whether the other end has closed."""
    pieces = []
    try:
        while data := sock.recv(1 << 16):
            pieces.append(data)
    except BlockingIOError:
        return b"".join(pieces), False
    except OSError:
        pass
    return b"".join(pieces), True
