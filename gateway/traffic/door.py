"""Who may ask a gateway that a browser can reach: a page must not spend the key of whoever runs it.

A gateway without keys is open to every program on the machine, and a browser there runs the programs of strangers. A
page can send some requests anywhere without being asked (https://fetch.spec.whatwg.org/#cors-safelisted-request-header),
and read what comes back once its own name leads to this machine. What a page cannot do is to lie in `Host`, `Origin`
and `Sec-Fetch-Site`: these decide.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import field as attrs_field
from attrs import frozen
from msgspec import Struct, field

from gateway.core.errors import ClientError, ForeignOrigin, NotJson, WrongHost
from gateway.core.origins import Authority, Origin, parse_authority, parse_origin

__all__ = ["Door", "Headers", "Knock", "Verdict"]

EXPOSED = ", ".join(
    (
        *("X-Request-Id", "X-Toolgate-Strategy", "X-Toolgate-Arm", "Retry-After", "X-Should-Retry"),
        *(f"X-RateLimit-{what}-{of}" for what in ("Limit", "Remaining", "Reset") for of in ("Requests", "Tokens")),
    )
)
"""Headers of an answer that an SDK in a page looks at."""
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
PREFLIGHT_S = 600
MAX_HEADERS = 64
"""SDKs send a dozen of their own (`x-stainless-*`); a wildcard would leave `Authorization` out."""
VARY = "Origin"
VARY_PREFLIGHT = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"

_TARGET = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_JSON = re.compile(r"(?:application|text)/json|[a-z0-9!#$&^_.-]+/[a-z0-9!#$&^_.+-]+\+json")


class Headers(Protocol):
    """The headers of a request, each as often as it was sent."""

    def getall(self, key: str, default: list[str]) -> list[str]: ...

    def __contains__(self, key: object) -> bool: ...


class Knock(Struct, frozen=True, kw_only=True):
    """What the head of a request says of where it comes from and where it wants to go."""

    method: str
    target: str
    """As it was sent, an absolute address if it was one."""
    headers: Headers
    has_body: bool
    is_old: bool = False
    """HTTP/1.0, which knows no `Host`. No browser leaves it out, so nobody's page is behind a request without one."""

    def values(self, name: str) -> list[str]:
        return self.headers.getall(name, [])

    def words(self, name: str) -> list[str]:
        """The values of a header that holds lists, or one word."""
        return [word.strip().lower() for value in self.values(name) for word in value.split(",")]

    @property
    def authorities(self) -> list[Authority | None]:
        """Everything that it calls this server, as far as that can be read; a missing or second `Host` cannot."""
        named = self.values("Host")
        # Two `Host` headers are read differently by those on the way:
        # https://www.rfc-editor.org/rfc/rfc9112#section-3.2
        found = [parse_authority(named[0]) if len(named) == 1 else None] if named or not self.is_old else []
        if not self.target.startswith("/") and self.target != "*":
            absolute = _TARGET.match(self.target)
            found.append(parse_authority(absolute[1] if absolute else self.target))
        return found

    @property
    def origin(self) -> Origin | None:
        """The page's, if there is one that can be read."""
        named = self.values("Origin")
        return parse_origin(named[0]) if len(named) == 1 else None

    @property
    def is_navigation(self) -> bool:
        """Somebody followed a link, into a tab of its own."""
        return self.words("Sec-Fetch-Mode") == ["navigate"] and self.words("Sec-Fetch-Dest") in ([], ["document"])

    @property
    def is_from_elsewhere(self) -> bool:
        """It says no origin, as links and pictures do, and that it is of another site.

        A link to the front page may be followed from anywhere: there is nothing to be had at `/`. Another port of the
        same host is the same site; a link from there may be followed, a picture or a frame is a page's own asking.
        """
        if "Sec-Fetch-Site" not in self.headers:
            return False
        sites = self.words("Sec-Fetch-Site")
        if "cross-site" in sites:
            is_front_page = self.method in ("GET", "HEAD") and self.target.partition("?")[0] == "/"
            return not (is_front_page and self.is_navigation)
        return "same-site" in sites and "Sec-Fetch-Mode" in self.headers and not self.is_navigation

    @property
    def is_preflight(self) -> bool:
        """A browser asks whether it may ask."""
        return self.method == "OPTIONS" and bool(self.values("Access-Control-Request-Method"))

    @property
    def declares_json(self) -> bool:
        """A page had to ask for leave to send this type."""
        named = self.values("Content-Type")
        return len(named) == 1 and _JSON.fullmatch(named[0].partition(";")[0].strip().lower()) is not None


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a request is let in."""

    refusal: ClientError | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """What every answer to it says to a browser, a refusal too."""
    is_preflight: bool = False
    """These headers are all of the answer."""


@frozen(kw_only=True)
class Door:
    """What the settings say of who is let in."""

    has_keys: bool
    hosts: Sequence[Authority] = ()
    origins: Sequence[Origin] = ()
    known: dict[tuple[str, bool], Verdict] = attrs_field(factory=dict, eq=False)
    """Hosts of requests that were let in, of those that come from no page."""

    def judge(self, knock: Knock, *, is_local: bool) -> Verdict:
        """`is_local` says that the port it came to listens on loopback alone."""
        if self._minds_hosts(is_local=is_local) and not all(map(self._knows, knock.authorities)):
            return Verdict(refusal=WrongHost(_WRONG_HOST), headers=self._headers(None))
        # Sent with every request that a script makes elsewhere, and with each that could change something.
        # https://www.rfc-editor.org/rfc/rfc6454#section-7
        if "Origin" in knock.headers:
            return self._judge_page(knock)
        if not self.has_keys and knock.is_from_elsewhere:
            return Verdict(refusal=ForeignOrigin(_FOREIGN), headers=self._headers(None))
        return Verdict(headers=self._headers(None))

    def _judge_page(self, knock: Knock) -> Verdict:
        """A request that says which page it comes from."""
        listed = self._listed(knock)
        if listed is None and self._is_foreign(knock):
            return Verdict(refusal=ForeignOrigin(_FOREIGN), headers=self._headers(None))
        headers = self._headers(listed)
        if listed is not None and knock.is_preflight:
            return Verdict(headers=headers | _leave(knock), is_preflight=True)
        # A form or a `text/plain` body goes anywhere without a browser's asking first.
        if knock.has_body and not knock.declares_json:
            return Verdict(refusal=NotJson(_NOT_JSON), headers=headers)
        return Verdict(headers=headers)

    def _minds_hosts(self, *, is_local: bool) -> bool:
        return not self.has_keys and (is_local or bool(self.hosts))

    def _knows(self, authority: Authority | None) -> bool:
        # A page whose own name has been made to lead here shows that name:
        # https://cwe.mitre.org/data/definitions/346.html
        if authority is None:
            return False
        return authority.is_loopback or any(
            entry.host == authority.host and entry.port in (None, authority.port) for entry in self.hosts
        )

    def _listed(self, knock: Knock) -> str | None:
        """The request's origin, in its own words, if pages from there are let in."""
        origin = knock.origin
        if origin is None or not any(entry.covers(origin) for entry in self.origins):
            return None
        return knock.values("Origin")[0]

    def _is_foreign(self, knock: Knock) -> bool:
        """The page is of another origin than the gateway; with keys whatever is in no list is, if there is one."""
        if self.has_keys:
            return bool(self.origins)
        origin, authorities = knock.origin, knock.authorities
        sites = knock.words("Sec-Fetch-Site")
        if origin is None or not authorities or "cross-site" in sites or "same-site" in sites:
            return True
        return not all(authority is not None and origin.is_served_by(authority) for authority in authorities)

    def _headers(self, listed: str | None) -> dict[str, str]:
        if not self.origins:
            return {}
        # Caches would hand one page's answer to another: https://fetch.spec.whatwg.org/#cors-protocol-and-http-caches
        if listed is None:
            return {"Vary": VARY}
        return {"Vary": VARY, "Access-Control-Allow-Origin": listed, "Access-Control-Expose-Headers": EXPOSED}


def _leave(knock: Knock) -> dict[str, str]:
    """What a page from a listed origin may send."""
    asked = [word for word in knock.words("Access-Control-Request-Headers") if _TOKEN.fullmatch(word)]
    headers = {
        "Vary": VARY_PREFLIGHT,
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Max-Age": str(PREFLIGHT_S),
    }
    if asked:
        headers["Access-Control-Allow-Headers"] = ", ".join(asked[:MAX_HEADERS])
    if knock.words("Access-Control-Request-Private-Network") == ["true"]:
        # Asked by Chromium for what a page of the internet wants of this machine: https://wicg.github.io/private-network-access/
        headers["Access-Control-Allow-Private-Network"] = "true"
    return headers


_WRONG_HOST = (
    "this gateway asks for no key, so it answers only to names that it knows, such as 127.0.0.1 and localhost, and not "
    "to the Host of this request; list the name in GATEWAY_ALLOWED_HOSTS, or set GATEWAY_API_KEYS"
)
_FOREIGN = (
    "pages of other sites may not ask this gateway; list the page's origin in GATEWAY_ALLOWED_ORIGINS, as "
    "scheme://host:port"
)
_NOT_JSON = "a page's request must declare its body as JSON: Content-Type: application/json"
