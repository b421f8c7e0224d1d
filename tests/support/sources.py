"""Links from the pages to where a rule or a fault was seen."""

import re

__all__ = ["faults_of", "is_address", "sources"]

_SOURCE = re.compile(r"(\[([^\[\]]+)\]\((https?://[^\s()]+)\))")
_THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")
_OF_HOST = {
    "github.com": re.compile(r"[\w.-]+/[\w.-]+/(?:(?:issues|pull)/\d+|blob/[\w.-]+/[\w./-]+\.\w+)"),
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


def is_address(address: str) -> bool:
    """Whether an address is one that can lead to something."""
    host, _, path = address.removeprefix("https://").partition("/")
    if not address.startswith("https://") or "." not in host or not path:
        return False
    return host not in _OF_HOST or _OF_HOST[host].fullmatch(path) is not None


def _leads(name: str, address: str) -> bool:
    thread = _THREAD.fullmatch(name)
    is_threads = thread is None or address == f"https://github.com/{name.replace('#', '/issues/')}"
    return is_address(address) and is_threads
