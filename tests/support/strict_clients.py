"""Answers of Responses and of Messages as strict clients read them: by the SDKs' own types, order and promises."""

import json
from collections.abc import Iterable
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from attrs import define, field
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import ConfigDict, TypeAdapter

__all__ = [
    *("Heard", "call", "checked_body", "checked_events", "chunk", "events_of"),
    *("final_of", "hear", "sse", "whole_chat"),
]


_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent, config=ConfigDict(strict=False))

_GROWING = {"content", "summary", "status", "arguments", "input", "encrypted_content"}

"""What an item has more of when it is done."""

_OUTER = {"response.output_item.done", "response.content_part.done", "response.reasoning_summary_part.done"}

_ENDS = {"response.completed", "response.incomplete", "response.failed"}


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events; each one's name is its type."""
    events = []
    for block in stream.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert stream.endswith(b"\n\n") or not stream
    return events


def checked_events(stream: bytes, *, tells_pieces: bool = True) -> list[dict[str, Any]]:
    """The events of a whole stream, after everything about them was checked.

    Some servers do not tell texts in pieces, but only at their ends.
    """
    events = events_of(stream)
    for event in events:
        if event["type"] == "response.failed":
            _check_failed(event)
        else:
            _EVENT.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] for event in events if event["type"] in _ENDS] == [events[-1]["type"]], "one end, at the end"
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    _check_items(events, tells_pieces=tells_pieces)
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    for event in events:
        state.handle_event(_EVENT.validate_python(event) if event["type"] != "response.failed" else _failed(event))
    return events


def checked_body(body: bytes) -> dict[str, Any]:
    """A whole response object."""
    told: dict[str, Any] = json.loads(body)
    Response.model_validate(told)
    return told


def final_of(stream: bytes) -> dict[str, Any]:
    """The object of a checked stream's last event."""
    final: dict[str, Any] = checked_events(stream)[-1]["response"]
    return final


def _failed(event: dict[str, Any]) -> Any:
    error = {**event["response"]["error"], "code": "server_error"}  # the type knows few of the codes that there are
    return _EVENT.validate_python({**event, "response": {**event["response"], "error": error}})


def _check_failed(event: dict[str, Any]) -> None:
    assert set(event["response"]["error"]) == {"code", "message"}
    _failed(event)


def _check_items(events: Iterable[dict[str, Any]], *, tells_pieces: bool) -> None:
    """Items open and close one after the other, each with one id, and say in the end what was said on the way."""
    done: list[dict[str, Any]] = []
    item: dict[str, Any] | None = None
    parts: list[dict[str, Any]] = []
    text: str | None = None
    for event in events:
        kind = event["type"]
        if "output_index" in event:
            assert event["output_index"] == len(done)
        if "item_id" in event:
            assert item is not None
            assert event["item_id"] == item["id"]
        if kind == "response.output_item.added":
            assert item is None, "the one before is closed"
            item, parts, text = event["item"], [], None
            assert item["id"] not in [each["id"] for each in done]
        elif kind == "response.content_part.added":
            assert event["content_index"] == len(parts)
            text = ""
        elif kind.endswith(".delta"):
            assert event["delta"] != "", "nothing is told without a word"
            text = (text or "") + event["delta"]
        elif kind.endswith(".done") and kind not in _OUTER:
            told = next(event[name] for name in ("text", "arguments", "input", "refusal") if name in event)
            assert (text or "") == told or not tells_pieces
            text = told
        elif kind == "response.content_part.done":
            parts.append(event["part"])
            assert text in (event["part"].get("text"), event["part"].get("refusal"))
        elif kind == "response.output_item.done":
            assert item is not None
            assert {name for name in item if name not in _GROWING and item[name] != event["item"].get(name)} == set()
            assert event["item"]["id"] == item["id"]
            assert event["item"]["type"] == item["type"]
            if "content" in event["item"]:
                assert event["item"]["content"] == parts
            done.append(event["item"])
            item = None
        elif kind in _ENDS:
            assert event["response"]["output"] == done
            assert item is None or kind == "response.failed", "nothing is open behind the end"
            assert event["response"]["status"] == kind.removeprefix("response.")


# --- Chat answers as a server streams them, and the same whole


def sse(*events: object) -> bytes:
    """A stream of these events; bytes stand as they are."""
    told = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return b"".join(b"data: " + each + b"\n\n" for each in told)


def chunk(reason: str | None = None, **delta: object) -> dict[str, Any]:
    """A chunk with this delta."""
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call(index: int, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A chunk with a whole call."""
    function = {"name": name, "arguments": arguments}
    return chunk(tool_calls=[{"index": index, "id": call_id, "type": "function", "function": function}])


def whole_chat(reason: str, *, usage: Any = None, **message: Any) -> bytes:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(body if usage is None else {**body, "usage": usage}).encode()


# --- Messages


_MESSAGES_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
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
        _MESSAGES_EVENT.validate_python(event)
        if kind == "message_start":
            assert not opened, "an answer begins once"
            opened = True
            Message.model_validate(event["message"])
            heard.usage = dict(event["message"]["usage"])
            continue
        assert opened, "an answer begins before all else"
        _hear(heard, event)
    return heard


def _hear(heard: Heard, event: dict[str, Any]) -> None:
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
