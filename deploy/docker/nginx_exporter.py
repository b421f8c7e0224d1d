"""Counts the answers of nginx by method and status for Prometheus, from its access log as it is sent to syslog.

nginx itself tells no more than how many connections it has. With this in its configuration:

    log_format toolgate_status '$request_method $status';
    access_log syslog:server=127.0.0.1:5140,tag=nginx toolgate_status;

and `python nginx_exporter.py --syslog 127.0.0.1:5140 --metrics 127.0.0.1:4040` beside it, the last row of the streaming
dashboard has what it asks for: `nginx_http_response_count_total`. What is no such line is counted and left alone.
"""

import argparse
import re
import socket

from prometheus_client import CollectorRegistry, Counter, start_http_server

_LINE = re.compile(rb"nginx: ([A-Z]{1,16}) ([1-5][0-9]{2})$")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_LONGEST = 8192


class Answers:
    """What nginx has told so far."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._count = Counter(
            "nginx_http_response_count", "Answers of nginx.", ["method", "status"], registry=self.registry
        )
        self._unread = Counter("nginx_log_unread", "Datagrams that were no line of its log.", registry=self.registry)

    def take(self, datagram: bytes) -> None:
        found = _LINE.search(datagram.rstrip(b"\r\n\0"))
        if found is None:
            self._unread.inc()
            return
        method, status = found[1].decode(), found[2].decode()
        # A client chooses the method: only those that are known have a series.
        self._count.labels(method if method in _METHODS else "other", status).inc()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def main() -> None:
    """Listen until the process is ended."""
    parser = argparse.ArgumentParser(description="Counts the answers of nginx for Prometheus.")
    parser.add_argument("--syslog", type=_address, default=("127.0.0.1", 5140), metavar="HOST:PORT")
    parser.add_argument("--metrics", type=_address, default=("127.0.0.1", 4040), metavar="HOST:PORT")
    given = parser.parse_args()
    answers = Answers()
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(given.syslog)
    start_http_server(given.metrics[1], given.metrics[0], answers.registry)
    while True:
        answers.take(listening.recv(_LONGEST))


if __name__ == "__main__":
    main()
