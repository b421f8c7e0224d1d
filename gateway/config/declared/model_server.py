"""Which model server is asked, and how long it is waited for."""

from functools import partial

from attrs import frozen

from gateway.config.declared.setting import setting
from gateway.config.declared.values import (
    choice,
    cookies,
    http_url,
    seconds,
    secret,
    size,
)
from gateway.kinds.rows import DEFAULT_KIND, KINDS

__all__ = ["ModelServer"]

_MIB = 1 << 20
_upstream = partial(setting, group="Model server")


@frozen(kw_only=True, slots=False)
class ModelServer:
    """Which model server is asked, and how long it is waited for."""

    upstream_url: str | None = _upstream(
        "UPSTREAM_URL",
        http_url,
        None,
        "Address of the model server, /v1 included; without it, and only on loopback, the embedded demo answers.",
    )
    upstream_api_key: str | None = _upstream(
        "UPSTREAM_API_KEY",
        secret,
        None,
        "Key for the model server; without it and GATEWAY_API_KEYS the client's own is passed on.",
        is_secret=True,
    )
    upstream_kind: str = _upstream(
        "UPSTREAM_KIND",
        choice(*KINDS),
        DEFAULT_KIND,
        "What the model server speaks: " + ", ".join(KINDS) + ".",
    )
    upstream_cookies: str | None = _upstream(
        "UPSTREAM_COOKIES", cookies, None, "Cookies for a qwen_web server, as the header holds them.", is_secret=True
    )
    connect_timeout_s: float = _upstream(
        "UPSTREAM_CONNECT_TIMEOUT_S", seconds(), 5.0, "How long connecting to the model server may take."
    )
    first_byte_timeout_s: float = _upstream(
        "UPSTREAM_FIRST_BYTE_TIMEOUT_S", seconds(), 600.0, "How long the model server may take to begin its answer."
    )
    idle_timeout_s: float = _upstream(
        "UPSTREAM_IDLE_TIMEOUT_S", seconds(), 300.0, "How long the model server may be silent within an answer."
    )
    total_timeout_s: float = _upstream(
        "UPSTREAM_TOTAL_TIMEOUT_S", seconds(), 3600.0, "How long one answer may take in all."
    )
    max_reply_bytes: int = _upstream(
        "UPSTREAM_MAX_REPLY_BYTES", size(1024), 64 * _MIB, "Largest answer of the model server, decoded."
    )
    max_event_bytes: int = _upstream(
        "UPSTREAM_MAX_EVENT_BYTES", size(1024), 4 * _MIB, "Largest single event of a streamed answer."
    )
