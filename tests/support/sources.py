"""Links from the pages to where a rule or a fault was seen."""

import re

__all__ = ["faults_of", "sources"]

_SOURCE = re.compile(r"(\[([^\[\]]+)\]\((https?://[^\s()]+)\))")
_THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")
_OF_HOST = {
    "github.com": re.compile(r"[\w.-]+/[\w.-]+/(?:issues/\d+|blob/[\w.-]+/[\w./-]+\.\w+)"),
    "huggingface.co": re.compile(r"[\w.-]+/[\w.-]+(?:#[\w-]+|/blob/main/[\w./-]+\.\w+)?"),
    "www.rfc-editor.org": re.compile(r"rfc/rfc\d+(?:#[\w.-]+)?"),
}
"""What an address at one of these hosts looks like; at others, whatever has a host and a path."""


def sources(text: str) -> list[tuple[str, str]]:
    """The links to elsewhere in a text: each as it is written, and its address."""
    return [(whole, address) for whole, _, address in _SOURCE.findall(text)]


def faults_of(text: str) -> list[str]:
    """The links that cannot lead where they say, and threads and addresses that are no links."""
    found = [whole for whole, name, address in _SOURCE.findall(text) if not _leads(name, address)]
    rest = _SOURCE.sub("", text)
    return found + _THREAD.findall(rest) + re.findall(r"https?://\S+", rest)


def _leads(name: str, address: str) -> bool:
    host, _, path = address.removeprefix("https://").partition("/")
    if not address.startswith("https://") or "." not in host or not path:
        return False
    if host in _OF_HOST and not _OF_HOST[host].fullmatch(path):
        return False
    thread = _THREAD.fullmatch(name)
    return thread is None or address == f"https://github.com/{name.replace('#', '/issues/')}"
