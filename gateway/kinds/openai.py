"""The kind that needs no translation: what comes is what goes, byte for byte."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from gateway.core.ports import Memory
from gateway.kinds.shared.port import Headers, HttpAsk, Reply, Situation

__all__ = ["OpenAiKind"]


@frozen
class _Through:
    """A dialogue that leaves everything as it is."""

    ask: HttpAsk
    again: None = None
    may_be_void: bool = False

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> HttpAsk | Reply:
        return Reply(status=status, body=body)

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""

    def remember(self, delivered: Mapping[str, Any] | None = None) -> tuple[Memory, ...]:
        return ()


@frozen
class OpenAiKind:
    """OpenAI chat completions."""

    name: str = "openai"

    def credentials(self, key: str | None, cookies: str | None = None) -> Headers:
        return (("Authorization", f"Bearer {key}"),) if key else ()

    def keys(self, body: Mapping[str, Any], *, scope: str = "") -> tuple[str, ...]:
        return ()

    def begin(
        self,
        body: Mapping[str, Any],
        raw: bytes,
        *,
        situation: Situation,
        known: Mapping[str, bytes],
        original: Mapping[str, Any] | None = None,
    ) -> _Through:
        return _Through(HttpAsk(path="/chat/completions", body=raw, streams=body.get("stream") is True))

    def can_say(self, parameters: Mapping[str, Any]) -> bool:
        return True

    def models_ask(self) -> HttpAsk:
        return HttpAsk(method="GET", path="/models")

    def models(self, body: bytes) -> bytes:
        return body
