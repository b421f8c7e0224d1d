"""The model servers of a configuration, each with its kind, its key and its times."""

import json
from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import Factory, evolve, field, frozen
from msgspec import Struct
from yarl import URL

from gateway.config.load import Settings, UpstreamSettings
from gateway.core.rules import ModelRule
from gateway.kinds.rows import KINDS, KindRow
from gateway.kinds.shared.port import Headers, HttpAsk, Kind
from gateway.request.headers import lines_of
from gateway.surfaces.port import LateSystem
from gateway.traffic.routing import DEFAULT_UPSTREAM

__all__ = ["Address", "Target", "Upstream", "target_of", "upstreams_of"]

MASK = b"********"
MIN_SECRET_CHARS = 8
"""Of a cookie's value: shorter ones are switches, and may stand in any text."""


Address = tuple[str, int]


class Target(Struct, frozen=True):
    """Where a request goes, and how it begins there."""

    address: Address
    beginning: bytes


def target_of(url: URL) -> Target | None:
    """Where a request for this address goes; None where that takes more than a connection."""
    # TLS and a name with a password are left to aiohttp.
    if url.scheme != "http" or url.raw_user is not None or url.raw_password is not None:
        return None
    line = f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
    return Target((url.raw_host or "", url.port or 80), line.encode())


@frozen(kw_only=True)
class Upstream:
    """One model server."""

    name: str
    kind: Kind
    base_url: URL
    chat_url: URL
    """Of the kind openai; another kind says for each request where it goes."""
    api_key: str | None = field(repr=False)
    cookies: str | None = field(repr=False)
    forwards_credentials: bool
    """The client's own key goes there."""
    connect_timeout_s: float
    first_byte_timeout_s: float
    idle_timeout_s: float
    total_timeout_s: float
    down_level: tuple[str, ...] = ()
    wires: tuple[str, ...] = ()
    """Those that its settings name; empty: to be found out."""
    late_system: LateSystem = "user"
    max_output_tokens: int | None = None
    tokenize: bool = False
    cache_control: Literal["drop", "keep"] = "drop"
    row: KindRow = field(init=False, default=Factory(lambda self: KINDS[self.kind.name], takes_self=True))
    """What is known of every server of its kind."""
    own_lines: bytes = field(
        init=False, repr=False, default=Factory(lambda self: lines_of(self._own()), takes_self=True)
    )
    """The lines that prove who asks, where that is the gateway."""
    own_names: frozenset[str] = field(
        init=False, default=Factory(lambda self: frozenset(name.lower() for name, _ in self._own()), takes_self=True)
    )
    """The names of their headers in lower case."""
    base: str = field(init=False, repr=False, default=Factory(lambda self: str(self.base_url), takes_self=True))
    """Its address in letters."""
    chat_target: Target | None = field(
        init=False, default=Factory(lambda self: target_of(self.chat_url), takes_self=True)
    )
    _timed: dict[int, tuple[ModelRule, "Upstream"]] = field(factory=dict, init=False, repr=False, eq=False)
    """By the rule that names other times."""

    def _own(self) -> Headers:
        return self.kind.credentials(self.api_key, self.cookies)

    def speaks(self, wire: str) -> bool:
        """Whether it may have this wire beside chat: its settings or its kind say so, or it has to be found out."""
        return wire == self.row.wire or wire in self.wires or (not self.wires and not self.row.is_translated)

    def url(self, ask: HttpAsk) -> URL:
        """Where a request of this server's kind goes."""
        path = self.base_url.raw_path.rstrip("/") + ask.path
        target = URL(f"{self.base_url.origin()}{path}", encoded=True)
        return target.update_query(list(ask.query)) if ask.query else target

    def masked(self, payload: bytes) -> bytes:
        """The server's own words without what it was sent to know the gateway by."""
        for secret in self._secrets():
            payload = payload.replace(secret, MASK)
        return payload

    def _secrets(self) -> Iterator[bytes]:
        """The key, the cookies and each of their values that is long enough to be one, as they stand in JSON too."""
        values = [value.partition("=")[2].strip(' "') for value in (self.cookies or "").split(";")]
        known = [self.api_key, self.cookies, *(value for value in values if len(value) >= MIN_SECRET_CHARS)]
        for secret in filter(None, known):
            yield secret.encode()
            # A server that quotes what it was sent does so in JSON.
            if '"' in secret or "\\" in secret:
                yield json.dumps(secret)[1:-1].encode()

    def timed(self, rule: ModelRule | None) -> "Upstream":
        """This server with the times that a rule names."""
        if rule is None:
            return self
        known = self._timed.get(id(rule))
        if known is None:
            timed = evolve(
                self,
                first_byte_timeout_s=rule.first_byte_timeout_s or self.first_byte_timeout_s,
                idle_timeout_s=rule.idle_timeout_s or self.idle_timeout_s,
                total_timeout_s=rule.total_timeout_s or self.total_timeout_s,
            )
            known = self._timed[id(rule)] = rule, timed
        return known[1]


def upstreams_of(settings: Settings, upstream_url: str | None) -> Mapping[str, Upstream]:
    """All of them by name, the default one first; `upstream_url` is that of the embedded demo, where it answers."""
    found: dict[str, Upstream] = {}
    url = settings.upstream_url or upstream_url
    if url:
        found[DEFAULT_UPSTREAM] = _upstream(
            settings,
            UpstreamSettings(
                name=DEFAULT_UPSTREAM,
                url=url,
                kind=settings.upstream_kind,
                api_key=settings.upstream_api_key,
                cookies=settings.upstream_cookies,
            ),
            # A key that lets into the gateway must never go to a model server.
            forwards_credentials=settings.api_keys.is_open and settings.upstream_api_key is None,
        )
    for each in settings.routes.upstreams:
        found[each.name] = _upstream(settings, each, forwards_credentials=False)
    return found


def _upstream(settings: Settings, each: UpstreamSettings, *, forwards_credentials: bool) -> Upstream:
    base_url = URL(each.url)
    return Upstream(
        name=each.name,
        kind=KINDS[each.kind].made(each.options),
        base_url=base_url,
        chat_url=base_url / "chat" / "completions",
        api_key=each.api_key,
        cookies=each.cookies,
        forwards_credentials=forwards_credentials,
        connect_timeout_s=each.connect_timeout_s or settings.connect_timeout_s,
        first_byte_timeout_s=each.first_byte_timeout_s or settings.first_byte_timeout_s,
        idle_timeout_s=each.idle_timeout_s or settings.idle_timeout_s,
        total_timeout_s=each.total_timeout_s or settings.total_timeout_s,
        down_level=each.down_level,
        wires=each.wires,
        late_system=each.late_system,
        max_output_tokens=each.max_output_tokens,
        tokenize=each.tokenize,
        cache_control=each.cache_control,
    )
