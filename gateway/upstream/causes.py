"""Why a model server could not answer, in one word for log and record, and what to look at, for whoever runs it."""

from gateway.config.declared.values import shown_url
from gateway.core.errors import BreakerOpen, UpstreamError
from gateway.request.servers import Upstream
from gateway.upstream.look import setting_of

__all__ = ["with_hint"]

_HINTS = {
    "refused": "is it running, and does {url} name its host and port?",
    "no_such_host": "is the host in {url} spelt right?",
    "tls": "is it http:// in {url}, not https://? can its certificate be trusted?",
    "timeout": "is it loading a model, or is a firewall in between? the UPSTREAM_*_TIMEOUT_S say how long is waited",
    "disconnected": "see its log; is it https:// in {url}?",
    "not_found": "does {url} end in /v1, and is the model loaded?",
}


def with_hint(error: UpstreamError | BreakerOpen, upstream: Upstream) -> str:
    """The error's message with the server's address and what to look at: for nobody but its own operator."""
    hint = _HINTS.get(error.cause or "")
    if hint is None:
        return error.message
    where = setting_of(upstream, "url")
    return f"{error.message} ({where} is {shown_url(str(upstream.base_url))}): {hint.format(url=where)}"
