"""Who may come in: a browser of this machine that was shown the address, and nobody's page.

A page on another site reaches loopback too: by a simple request, by a form, or by a name of its own that leads here
(https://nvd.nist.gov/vuln/detail/CVE-2018-14505). What it cannot do is lie in `Host`, `Origin` and `Sec-Fetch-Site`, or
have the cookie that the address with the key was traded for.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from hmac import compare_digest

from attrs import define, field, frozen

__all__ = ["HEADERS", "Door", "Refusal"]

KEY_S = 300.0
"""How long the key of the printed address is good, for one visit."""
_OWN_HEADER = "X-Toolgate-Inspector"
_NAMES = ("127.0.0.1", "localhost", "[::1]")
# A browser says `none` of an address that somebody typed: https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
_SITES = ("same-origin", "none")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer."""


@frozen
class Refusal:
    """Why a request is not answered."""

    status: int
    code: str
    message: str


def _key() -> str:
    return secrets.token_urlsafe(32)


@define
class Door:
    """Stands before everything that the port serves."""

    port: int
    now: Callable[[], float] = time.monotonic
    key: str = field(factory=_key, repr=False)
    """Stands in the printed address."""
    _cookie: str = field(init=False, factory=_key, repr=False)
    _until: float = field(init=False)
    _is_used: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._until = self.now() + KEY_S

    @property
    def cookie_name(self) -> str:
        """Cookies know no ports, so the name holds it."""
        return f"toolgate_inspector_{self.port}"

    @property
    def cookie(self) -> str:
        return self._cookie

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(f"http://{name}:{self.port}" for name in _NAMES)

    def stops(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request may not even be looked at: its names, before its key."""
        host = headers.get("Host", "").lower()
        if host not in {f"{name}:{self.port}" for name in _NAMES}:
            return Refusal(421, "wrong_host", "this page answers to its own address alone")
        # Older browsers do not send it; for them `Host` and `Origin` have to do.
        if headers.get("Sec-Fetch-Site", "none").lower() not in _SITES:
            return Refusal(403, "foreign_site", "another site may not ask this page for anything")
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return Refusal(403, "foreign_origin", "another origin may not ask this page for anything")
        if method not in ("GET", "HEAD", "POST"):
            return Refusal(405, "method_not_allowed", "only GET and POST are answered")
        if method == "POST":
            return self._stops_post(headers, origin)
        return None

    def _stops_post(self, headers: Mapping[str, str], origin: str | None) -> Refusal | None:
        if origin is None:
            return Refusal(403, "foreign_origin", "an action needs the Origin header of the page")
        # A form of another site can be sent without asking, but not as JSON, and not with a header of one's own:
        # https://fetch.spec.whatwg.org/#cors-safelisted-request-header
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "not_json", "an action is sent as application/json")
        if headers.get(_OWN_HEADER) != "1":
            return Refusal(403, "foreign_site", f"an action needs the header {_OWN_HEADER}")
        return None

    def trades(self, key: str) -> bool:
        """Whether this is the key of the address; it is good once."""
        # As bytes: of texts `compare_digest` takes only ASCII, and raises for others.
        is_right = compare_digest(key.encode(), self.key.encode())
        if not is_right or self._is_used or self.now() > self._until:
            return False
        self._is_used = True
        return True

    def knows(self, cookies: Mapping[str, str]) -> bool:
        """Whether the browser has the cookie that the key was traded for."""
        return compare_digest(cookies.get(self.cookie_name, "").encode(), self._cookie.encode())
