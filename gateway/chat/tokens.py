"""What a request takes in tokens: counted by its model server where that can, else by what its answers have told."""

from typing import Any

import msgspec
import structlog
from aiohttp import web
from yarl import URL

from gateway.chat.accept import accept
from gateway.core.errors import GatewayError
from gateway.core.ports import Memory
from gateway.request.headers import lines_of
from gateway.request.responses import json_response
from gateway.request.servers import Upstream
from gateway.request.state import RequestState
from gateway.surfaces.port import Asked
from gateway.traffic.absent_paths import ABSENT_STATUSES
from gateway.traffic.routing import Route
from gateway.traffic.token_ratios import SAMPLES
from gateway.upstream.attempts import open_reply, upstream_headers
from gateway.wire.chat_request import ChatRequest, renamed, texts_of

__all__ = ["count_tokens", "estimate", "learn_ratio", "load_ratio"]

COUNT_PATH = "messages/count_tokens"
TOKENIZE_PATH = "tokenize"
RATIO_TTL_S = 30 * 86_400.0
_SAVED_EARLY = (1, 2, 4, 8, 16)
_MOST_TOKENS = 1 << 40

log = structlog.get_logger("toolgate")


async def count_tokens(state: RequestState) -> web.StreamResponse:
    """`POST /v1/messages/count_tokens`: never an error but for a request that is none."""
    raw = await state.read_body()
    asked = await accept(state, raw)
    model = state.model = asked.request.model
    route = state.configuration.router.route(model)
    state.upstream = state.configuration.upstreams[route.upstreams[0]].timed(route.rule)
    tokens, source = await _counted(state, asked, route, raw)
    if tokens is None:
        if not state.shared.token_ratios.knows(state.upstream.name, model):
            await load_ratio(state, model)
        # What has no form in chat is measured as it came.
        tokens, source = estimate(state, asked.request, size=None if asked.refusal is None else len(raw))
    state.shared.telemetry.count(
        "toolgate_token_counts_total", {"source": "upstream" if source == "counted" else source}
    )
    state.told["X-Toolgate-Tokens"] = source
    return await state.send(json_response(msgspec.json.encode({"input_tokens": tokens})))


def estimate(state: RequestState, request: ChatRequest, *, size: int | None = None) -> tuple[int, str]:
    """What a request takes, by what was learned of its model, and how well that is known."""
    size, images = _size(request) if size is None else (size, 0)
    tokens, is_learned = state.shared.token_ratios.tokens(state.upstream.name, request.model, size, images)
    return tokens, "learned" if is_learned else "estimate"


async def load_ratio(state: RequestState, model: str) -> None:
    """Begin with what others have learned of a model of which nothing is known here."""
    ratios, name = state.shared.token_ratios, state.upstream.name
    key = _key(name, model)
    found = (await state.shared.sessions.recall(key)).get(key, b"[]")
    try:
        kept = msgspec.json.decode(found)
    except ValueError:
        kept = []
    ratios.load(name, model, kept if isinstance(kept, list) else [])


def learn_ratio(state: RequestState, asked: Asked) -> Memory | None:
    """Take down what the request took, as its answer told; what others are to know of it now and then."""
    facts = state.found.facts
    tokens = facts.usage.get("input") if facts is not None else None
    # A second answer has its own request in the sum; what a picture takes is another matter.
    if facts is None or not tokens or facts.has_second_answer:
        return None
    size, images = _size(asked.request)
    if images:
        return None
    name, model, ratios = state.upstream.name, asked.request.model, state.shared.token_ratios
    answers = ratios.observe(name, model, size, tokens)
    # The first answers teach most; later ones change little, and each writing is one more to the store.
    if answers and (answers % SAMPLES == 0 or answers in _SAVED_EARLY):
        kept = msgspec.json.encode(ratios.known(name, model))
        return Memory(key=_key(name, model), value=kept, ttl_s=RATIO_TTL_S)
    return None


def _key(upstream: str, model: str) -> str:
    return f"tokens:{upstream}:{model}"


def _size(request: ChatRequest) -> tuple[int, int]:
    """The bytes of a request without its pictures, and how many of those it has."""
    size, images = len(request.raw), 0
    if not request.has_pictures:
        return size, 0
    for message in request.messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            image = part.get("image_url") if isinstance(part, dict) else None
            url = image.get("url") if isinstance(image, dict) else None
            if isinstance(url, str):
                size, images = size - len(url), images + 1
    return size, images


async def _counted(state: RequestState, asked: Asked, route: Route, raw: bytes) -> tuple[int | None, str]:
    """What the model server itself counts, by whichever of its ways is there."""
    upstream = state.upstream
    if upstream.speaks("messages"):
        url = upstream.base_url / COUNT_PATH
        found = await _asked(state, upstream, url, COUNT_PATH, renamed(raw, route.send_as) if route.send_as else raw)
        tokens = found.get("input_tokens")
        if _is_count(tokens):
            return tokens, "counted"
    if upstream.tokenize:
        # vLLM and llama.cpp have this path beside their `/v1`, not below it.
        url = upstream.base_url.origin() / TOKENIZE_PATH
        body = {"model": route.send_as or asked.request.model, **_text(asked.request)}
        found = await _asked(state, upstream, url, TOKENIZE_PATH, msgspec.json.encode(body))
        tokens = found.get("count")
        # vLLM counts the tokens, llama.cpp lists them.
        if not _is_count(tokens) and isinstance(found.get("tokens"), list):
            tokens = len(found["tokens"])
        if _is_count(tokens):
            return tokens, "counted"
    return None, ""


def _text(request: ChatRequest) -> dict[str, Any]:
    """All that is said, for vLLM (`prompt`) and for llama.cpp (`content`)."""
    said = [text for message in request.messages for text in texts_of(message.get("content"))]
    said += [str(call) for message in request.messages for call in message.get("tool_calls") or ()]
    if request.body.get("tools"):
        said.append(msgspec.json.encode(request.body["tools"]).decode())
    text = "\n".join(said)
    return {"prompt": text, "content": text}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_TOKENS


async def _asked(state: RequestState, upstream: Upstream, url: URL, path: str, body: bytes) -> dict[str, Any]:
    """The server's answer; empty where it has none, whatever the reason."""
    absent, now = state.shared.absent_paths, state.deadline.now()
    if absent.has(upstream.name, path, now):
        return {}
    headers = upstream_headers(state, same_wire=path == COUNT_PATH)
    headers["Content-Type"] = headers["Accept"] = "application/json"
    headers["Accept-Encoding"] = "identity"
    try:
        with await open_reply(
            state, "POST", url, lines=lines_of(headers.items()), body=body, relayed=True, repeatable=False
        ) as reply:
            if reply.status in ABSENT_STATUSES:
                absent.note(upstream.name, path, now)
            found = await reply.read_all(**state.deadlines) if reply.status == 200 else b"{}"
        answer = msgspec.json.decode(found)
    except (GatewayError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
