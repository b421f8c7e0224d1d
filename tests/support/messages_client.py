"""What a Messages client makes of an answer: each event is held to the types of Anthropic's SDK, and to its order."""

import json
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from attrs import define, field
from pydantic import TypeAdapter

__all__ = ["Heard", "events_of", "hear"]

_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_DELTAS = {
    "text": {"text_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
}


@define
class Heard:
    """An answer as it was put together."""

    content: list[dict[str, Any]] = field(factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: dict[str, Any] = field(factory=dict)
    error: dict[str, Any] | None = None
    is_whole: bool = False
    open_block: bool = False
    """The last block did not end."""
    pings: int = 0

    @property
    def meaning(self) -> tuple[Any, ...]:
        """All but ids, times and signatures."""
        blocks = [{k: v for k, v in block.items() if k not in ("id", "signature", "json")} for block in self.content]
        return blocks, self.stop_reason, self.stop_sequence, self.usage


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events, each with the name that its data has."""
    found = []
    for raw in stream.decode().split("\n\n")[:-1]:
        name, data = raw.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        found.append(value)
    assert stream.endswith(b"\n\n") or not stream
    return found


def hear(stream: bytes) -> Heard:
    """Put the answer together; fails on whatever a strict client fails on."""
    heard, opened = Heard(), False
    for event in events_of(stream):
        kind = event["type"]
        assert not heard.is_whole, "nothing follows the end"
        assert heard.error is None, "nothing follows an error"
        if kind == "ping":
            heard.pings += 1
            continue
        if kind == "error":
            heard.error = event["error"]
            continue
        _EVENT.validate_python(event)
        if kind == "message_start":
            assert not opened, "an answer begins once"
            opened = True
            Message.model_validate(event["message"])
            heard.usage = dict(event["message"]["usage"])
            continue
        assert opened, "an answer begins before all else"
        _take(heard, event)
    return heard


def _take(heard: Heard, event: dict[str, Any]) -> None:
    kind, content = event["type"], heard.content
    if kind == "content_block_start":
        assert not heard.open_block, "blocks do not overlap"
        assert event["index"] == len(content), "indexes have no gaps"
        block = dict(event["content_block"])
        assert block.get("input", {}) == {}, "arguments in a beginning are lost"
        content.append({**block, "json": ""})
        heard.open_block = True
    elif kind == "content_block_delta":
        assert heard.open_block
        assert event["index"] == len(content) - 1
        delta, block = event["delta"], content[-1]
        assert delta["type"] in _DELTAS[block["type"]]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
            case "thinking_delta":
                assert not block["signature"], "a thought is signed behind its last word"
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                assert not block["signature"], "a thought is signed once"
                block["signature"] = delta["signature"]
            case "input_json_delta":
                block["json"] += delta["partial_json"]
    elif kind == "content_block_stop":
        assert heard.open_block
        assert event["index"] == len(content) - 1
        if content[-1]["type"] == "tool_use":
            content[-1]["input"] = json.loads(content[-1]["json"] or "{}")
            assert isinstance(content[-1]["input"], dict)
        heard.open_block = False
    elif kind == "message_delta":
        heard.stop_reason = event["delta"]["stop_reason"]
        heard.stop_sequence = event["delta"]["stop_sequence"]
        heard.usage = {**heard.usage, **event["usage"]}
    elif kind == "message_stop":
        assert heard.stop_reason is not None
        heard.is_whole = True
