"""A look at a model server from outside of any request: is it there, which models has it, and if not, what to set.

The same words stand behind the errors of requests, for whoever runs a gateway of their own (`with_hint`).
"""

import asyncio
import json
import os
import ssl
from typing import Literal

import aiohttp
from attrs import frozen

from gateway.config.declared.values import shown_url
from gateway.core.errors import BreakerOpen, GatewayError, UpstreamError
from gateway.core.version import __version__
from gateway.request.servers import Upstream
from gateway.traffic.absent_paths import ABSENT_STATUSES
from gateway.traffic.routing import DEFAULT_UPSTREAM

__all__ = ["Look", "look_at", "setting_of", "wires_of", "with_hint"]

_LONGEST_S = 10.0
_WIRES_S = 5.0
_MAX_LISTING_BYTES = 8 << 20
_SHOWN_MODELS = 3
_HINTS = {
    "refused": "is it running, and does {url} name its host and port?",
    "no_such_host": "is the host in {url} spelt right?",
    "tls": "is it http:// in {url}, not https://? can its certificate be trusted?",
    "timeout": "is it loading a model, or is a firewall in between? the UPSTREAM_*_TIMEOUT_S say how long is waited",
    "disconnected": "see its log; is it https:// in {url}?",
    "not_found": "does {url} end in /v1, and is the model loaded?",
}
"""By the cause of a fault: what to look at, with the setting that names the server."""


@frozen(kw_only=True)
class Look:
    """What was seen of one model server, in words for whoever runs the gateway."""

    level: Literal["ok", "warning", "fault"]
    message: str
    advice: str = ""
    models: int | None = None
    """How many it lists, where it does."""
    date: str | None = None
    """The time that it gives for its own."""


async def look_at(upstream: Upstream) -> Look:
    """Ask it for its models; ends within seconds, however it fares."""
    where = _shown(upstream)
    try:
        async with asyncio.timeout(_LONGEST_S):
            return await _asked(upstream)
    except TimeoutError:
        message, advice = f"does not answer within {_LONGEST_S:g} s", "is it busy loading a model? is it a firewall?"
    except aiohttp.ClientConnectorDNSError:
        message, advice = "has no address", f"is the host in {setting_of(upstream, 'url')} spelt right?"
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        message, advice = _of_tls(error, upstream)
    except aiohttp.ClientConnectorError as error:
        number = error.os_error.errno
        message = f"cannot be reached: {os.strerror(number) if number else 'connection failed'}"
        advice = f"is it running, and does {setting_of(upstream, 'url')} name its host and port?"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        message = f"does not speak HTTP as expected: {type(error).__name__}"
        advice = f"see what listens there; is it https:// in {setting_of(upstream, 'url')}?"
    return Look(level="fault", message=f"{where} {message}", advice=advice)


async def wires_of(upstream: Upstream) -> tuple[str, ...] | None:
    """What it speaks: by its kind and its settings or, where those leave it open, by asking with an empty request.

    None where that cannot be told. An empty request is refused by whoever has the path, and costs nothing.
    """
    if upstream.row.is_translated or upstream.wires:
        return tuple(dict.fromkeys((upstream.row.wire, *upstream.wires)))
    headers = dict(upstream.kind.credentials(upstream.api_key, upstream.cookies))
    headers |= {"Content-Type": "application/json", "User-Agent": f"toolgate/{__version__}"}
    found = [upstream.row.wire]
    try:
        async with asyncio.timeout(_WIRES_S), aiohttp.ClientSession() as session:
            for wire in ("responses", "messages"):
                url = upstream.base_url / wire
                async with session.post(url, data=b"{}", headers=headers, allow_redirects=False) as response:
                    # A gateway before the server may ask for a key whatever the path, which says nothing of the path.
                    if response.status in (401, 403) or (response.status >= 500 and response.status != 501):
                        return None
                    if response.status not in ABSENT_STATUSES and not 300 <= response.status < 400:
                        found.append(wire)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
    return tuple(found)


def setting_of(upstream: Upstream, key: str) -> str:
    """What has to be changed for this server."""
    if upstream.name == DEFAULT_UPSTREAM:
        return f"UPSTREAM_{key.upper()}"
    return f"{key} of [upstreams.{upstream.name}]"


def _of_tls(error: Exception, upstream: Upstream) -> tuple[str, str]:
    # A server that answers a handshake with plain HTTP sends no record of any version of TLS.
    plain = "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER_FAILURE" in str(error)
    if plain:
        return "does not speak TLS", f"is it http:// in {setting_of(upstream, 'url')}, not https://?"
    return "has no TLS certificate that can be trusted", "is it http:// instead of https://? is the host's name right?"


async def _asked(upstream: Upstream) -> Look:
    ask = upstream.kind.models_ask()
    headers = dict((*upstream.kind.credentials(upstream.api_key, upstream.cookies), *ask.headers))
    headers |= {"Accept": "application/json", "User-Agent": f"toolgate/{__version__}"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            ask.method, upstream.url(ask), headers=headers, data=ask.body or None, allow_redirects=False
        ) as response,
    ):
        return _answered(upstream, response.status, await _body(response), response.headers.get("Date"))


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The listing whole, in however many pieces it comes; one that is too large is cut, and so is none."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_LISTING_BYTES:
            break
    return bytes(body)


def _answered(upstream: Upstream, status: int, body: bytes, date: str | None) -> Look:
    where = _shown(upstream)
    key, url = setting_of(upstream, "api_key"), setting_of(upstream, "url")
    if status in (401, 403) and (upstream.api_key or upstream.cookies):
        message, advice = f"{where} refuses {key} ({status})", "set the key that it wants"
        return Look(level="fault", message=message, advice=advice, date=date)
    if status in (401, 403):
        message = f"{where} is there and wants a key ({status})"
        advice = f"set {key}" + (", or let clients send their own" if upstream.forwards_credentials else "")
        return Look(level="warning", message=message, advice=advice, date=date)
    if 300 <= status < 400:
        message = f"{where} sends elsewhere ({status}), which is not followed"
        return Look(level="fault", message=message, advice=f"set {url} to where it sends", date=date)
    if status >= 500:
        return Look(level="fault", message=f"{where} answers {status}", advice="see its log", date=date)
    if (
        status == 400 and b"plain HTTP request" in body
    ):  # nginx's words: https://nginx.org/en/docs/http/configuring_https_servers.html
        message = f"{where} speaks TLS on that port"
        return Look(level="fault", message=message, advice=f"is it https:// in {url}?", date=date)
    models = _models(upstream, body) if status == 200 else None
    if models is None:
        message = f"{where} is there and has no list of models ({status})"
        # Ollama, vLLM and llama.cpp all do; without it the first request would end in a 404 that says nothing.
        advice = f"most servers answer below /v1: does {url} include it?"
        return Look(level="warning", message=message, advice=advice, date=date)
    if not models:
        return Look(level="warning", message=f"{where} has no model", advice="load one", models=0, date=date)
    left = len(models) - _SHOWN_MODELS
    more = f" and {left} more" if left > 0 else ""
    message = f"{where} has {', '.join(models[:_SHOWN_MODELS])}{more}"
    return Look(level="ok", message=message, models=len(models), date=date)


def _models(upstream: Upstream, body: bytes) -> list[str] | None:
    try:
        listing = json.loads(upstream.kind.models(body))
    except (ValueError, RecursionError, GatewayError):
        return None
    entries = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(entries, list):
        return None
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return [name[:64] if name.isprintable() else "?" for name in names if isinstance(name, str)]


def _shown(upstream: Upstream) -> str:
    name = "" if upstream.name == DEFAULT_UPSTREAM else f"{upstream.name}: "
    return f"{name}{shown_url(str(upstream.base_url.with_user(None)))}"


def with_hint(error: UpstreamError | BreakerOpen, upstream: Upstream) -> str:
    """The error's message with the server's address and what to look at: for nobody but its own operator."""
    hint = _HINTS.get(error.cause or "")
    if hint is None:
        return error.message
    where = setting_of(upstream, "url")
    return f"{error.message} ({where} is {shown_url(str(upstream.base_url))}): {hint.format(url=where)}"
