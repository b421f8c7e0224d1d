"""The listening sockets, one set per worker, which outlive the workers that accept from them.

Measured with four workers on two cores and 200 connections 20 ms apart. On one socket that all share, whoever wakes
first takes most: 123, 39, 38 and 0 (accepting one at a time is worse: 190 of 200 for one of them), and a stream stays
for minutes where it was put. With SO_REUSEPORT the kernel deals evenly, 57, 52, 57 and 34, but a worker that closes its
socket loses what waits in it. So every lane is a SO_REUSEPORT socket that the supervisor opens and keeps: a worker that
drains, ends or is killed loses none of the connections that wait, its successor or another worker accepts them.
"""

import errno
import socket
from contextlib import ExitStack, suppress

from attrs import frozen

__all__ = ["Lanes", "is_taken", "open_lanes"]

_SKIPPED = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""A name may resolve to an address of a family that this machine does not have; the others will do."""


@frozen
class Lanes:
    """For each lane its sockets, one per address; `close` ends the listening for good."""

    port: int
    sockets: tuple[tuple[socket.socket, ...], ...]

    def filenos(self) -> list[list[int]]:
        """What a worker inherits."""
        return [[sock.fileno() for sock in lane] for lane in self.sockets]

    def close(self) -> None:
        """Take nothing new from now on."""
        for lane in self.sockets:
            for sock in lane:
                sock.close()


def open_lanes(host: str, port: int, count: int) -> Lanes:
    """Bind, not yet listening; raises `OSError` when the port is taken, by another set of lanes too."""
    addresses = _addresses(host, port)
    with ExitStack() as opened:
        # Without SO_REUSEPORT: another gateway of the same user would share the port silently.
        # Bound once alone and let go: it also tells which port 0 becomes.
        first = _bound(addresses, port, opened, shared=False)
        number = int(first[0].getsockname()[1])
        for sock in first:
            sock.close()
        lanes = tuple(tuple(_bound(addresses, number, opened, shared=True)) for _ in range(count))
        opened.pop_all()
    return Lanes(number, lanes)


def is_taken(host: str, port: int) -> bool:
    """Another program listens there; a host that cannot be used is for whoever listens to find out."""
    try:
        addresses = _addresses(host, port)
        with ExitStack() as opened:
            _bound(addresses, port, opened, shared=False)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))


def _bound(addresses: list[tuple[int, str]], port: int, opened: ExitStack, *, shared: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    fault: OSError | None = None
    for family, address in addresses:
        try:
            sock = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            _prepare(sock, family, shared=shared)
            sock.bind((address, port))
        except OSError as error:
            if error.errno not in _SKIPPED:
                raise
            fault = error
            continue
        sockets.append(sock)
        port = int(sock.getsockname()[1])
    if not sockets:
        raise fault or OSError(errno.EADDRNOTAVAIL, "no address to listen on")
    return sockets


def _prepare(sock: socket.socket, family: int, *, shared: bool) -> None:
    sock.setblocking(False)
    # Connections of the last run that are still being closed would keep the port for a minute.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        with suppress(OSError):
            # Else the address of the other family, bound beside it, counts as taken:
            # https://www.rfc-editor.org/rfc/rfc3493#section-5.3
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
