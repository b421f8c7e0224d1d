"""Streams of the Responses API as a strict client reads them: by the SDK's own types, and by what they promise."""

import json
from collections.abc import Iterable
from typing import Any

from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import ConfigDict, TypeAdapter

__all__ = ["call", "checked_body", "checked_events", "chunk", "events_of", "final_of", "sse", "whole_chat"]


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
