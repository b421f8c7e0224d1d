"""Which host a request is for and which page sent it: `Host` and `Origin`, read as browsers write them.

Both are hostile input, and what is compared with them decides who may spend a key. So only the one form is read that
browsers make of an address (lower case apart): no user names, no dot at the end, no other spellings of an address.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from types import MappingProxyType

from attrs import field, frozen

__all__ = ["Authority", "Origin", "is_loopback", "parse_authority", "parse_origin"]

_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})
_NAME = r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?"
_PORT = r"(?::(0|[1-9][0-9]{0,4}))?"
_AUTHORITY = re.compile(rf"({_NAME}|\[[0-9a-f:.]{{2,45}}\]){_PORT}")
_SCHEME = r"[a-z][a-z0-9+.-]{0,63}"
_ORIGIN = re.compile(rf"({_SCHEME})://(.{{0,320}})")
_FOREIGN_HOST = re.compile(rf"([a-z0-9._~-]{{0,255}}){_PORT}")
"""What stands behind a scheme of an application's own: the id of an extension, a random word, nothing."""
# A browser takes a host whose last label is a number for an address:
# https://url.spec.whatwg.org/#ends-in-a-number-checker
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
# A name has 253 characters at most: what is much longer is no host, and not worth a pattern.
_LONGEST = 400


@frozen(kw_only=True)
class Authority:
    """A host in the form that browsers give it, IPv6 in brackets, and the port if one is named."""

    host: str
    port: int | None = None
    is_loopback: bool = field(init=False, eq=False, repr=False)
    """It is a name of this machine that nobody else's name server answers for."""

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @is_loopback.default
    def _is_loopback(self) -> bool:
        # Browsers and resolvers keep this name on the machine: https://www.rfc-editor.org/rfc/rfc6761#section-6.3
        if self.host in ("localhost", "[::1]"):
            return True
        return self.host.startswith("127.") and _is_address(self.host)


@frozen(kw_only=True)
class Origin:
    """Where a page comes from; the host `*` stands for any of its scheme."""

    scheme: str
    host: str
    port: int | None = None
    """Of http and https it is always known."""

    def __str__(self) -> str:
        is_shown = self.port is not None and self.port != _PORTS.get(self.scheme)
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if is_shown else "")

    @property
    def is_web(self) -> bool:
        """It was served by a host, and is no page of an application's own."""
        return self.scheme in _PORTS

    def covers(self, other: "Origin") -> bool:
        """The other one is meant by this entry of a list."""
        return self == other or (self.host == "*" and self.scheme == other.scheme)

    def is_served_by(self, authority: Authority) -> bool:
        """The page comes from where its request goes to."""
        port = _PORTS.get(self.scheme) if authority.port is None else authority.port
        return self.is_web and (self.host, self.port) == (authority.host, port)


@lru_cache(maxsize=64)
def parse_authority(text: str) -> Authority | None:
    """`host`, `host:port` or the same with an IPv6 address in brackets; nothing for any other text."""
    if len(text) > _LONGEST:
        return None
    match = _AUTHORITY.fullmatch(text.lower()) if text.isascii() else None
    host = None if match is None else _host(match[1])
    if match is None or host is None:
        return None
    port = None if match[2] is None else int(match[2])
    return None if port is not None and port > 65535 else Authority(host=host, port=port)


@lru_cache(maxsize=64)
def parse_origin(text: str) -> Origin | None:
    """`scheme://host`, with a port or without; nothing for any other text, `null` among them."""
    if len(text) > _LONGEST:
        return None
    # Browsers send names of other scripts as Punycode.
    match = _ORIGIN.fullmatch(text.lower()) if text.isascii() else None
    if match is None:
        return None
    scheme = match[1]
    if scheme in _PORTS:
        authority = parse_authority(match[2])
        if authority is None:
            return None
        port = _PORTS[scheme] if authority.port is None else authority.port
        return Origin(scheme=scheme, host=authority.host, port=port)
    other = _FOREIGN_HOST.fullmatch(match[2])
    if other is None or (other[2] is not None and int(other[2]) > 65535):
        return None
    return Origin(scheme=scheme, host=other[1], port=None if other[2] is None else int(other[2]))


def is_loopback(host: str) -> bool:
    """Only this machine can reach what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # Older Pythons do not look into it: https://github.com/python/cpython/issues/117566
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _host(text: str) -> str | None:
    if text.startswith("["):
        try:
            # An address has one shortest form, which browsers send: https://www.rfc-editor.org/rfc/rfc5952#section-4
            return f"[{IPv6Address(text[1:-1]).compressed}]"
        except AddressValueError:
            return None
    if ".." in text or (_NUMERIC.fullmatch(text.rpartition(".")[2]) and not _is_address(text)):
        return None  # 127.1, 0x7f.0.0.1: addresses to some, names to others
    return text


def _is_address(text: str) -> bool:
    """It is an address in four parts."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
