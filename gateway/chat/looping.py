"""A conversation that goes round in a circle: its last calls are all the same, and so are their results.

It is told to whoever watches, and, where that is wished, to the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from gateway.request.state import RequestState
from gateway.wire.chat_request import ChatRequest

__all__ = ["EQUAL", "looping_tool", "note_loop", "steered"]

EQUAL = 4
"""So many equal calls with equal results are no polling that is about to succeed."""
STEER = "The last calls were all the same and so were their results: do something else, or say what is missing."
_MAX_LOOKED_AT = 64

log = structlog.get_logger("toolgate")


def note_loop(state: RequestState, request: ChatRequest) -> None:
    """Count it; a fault in looking costs nothing but the signal."""
    try:
        tool = looping_tool(request.messages)
    except Exception:
        log.exception("loop_unread")
        return
    state.found.looping_tool = tool
    if tool is None:
        return
    labels = {"model": state.model or "", "tool": tool}
    state.shared.telemetry.count("toolgate_conversation_loops_total", labels)
    state.found.notes.append(f"four equal calls of {tool} with equal results")
    log.warning("conversation_loops", upstream=state.upstream.name, **labels)


def steered(state: RequestState, request: ChatRequest) -> ChatRequest:
    """The request with a sentence behind the last result of a loop, where that was asked for."""
    wants = state.configuration.settings.loop_steer and state.found.arm == "live"
    if not wants or state.found.looping_tool is None:
        return request
    last = request.messages[-1]
    content = last.get("content")
    if last.get("role") != "tool" or not isinstance(content, str):
        return request
    messages = [*request.messages[:-1], {**last, "content": f"{content}\n\n{STEER}"}]
    state.found.notes.append("the model was told of the loop")
    return request.with_messages(messages)


def looping_tool(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The tool that the history ends in calls of, four times alike; looked at from the end, and no further."""
    results: dict[str, str] = {}
    last: tuple[str, str, str] | None = None
    equal = 0
    for message in list(messages)[-_MAX_LOOKED_AT:][::-1]:
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if isinstance(call_id, str):
                results.setdefault(call_id, repr(message.get("content")))
            continue
        if role != "assistant":
            return None
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) != 1:
            return None
        made = _made(calls[0], results)
        if made is None or (last is not None and made != last):
            return None
        last, equal = made, equal + 1
        if equal == EQUAL:
            return made[0]
    return None


def _made(call: Any, results: Mapping[str, str]) -> tuple[str, str, str] | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        return None
    name, call_id = function.get("name"), call.get("id")
    result = results.get(call_id) if isinstance(call_id, str) else None
    if not isinstance(name, str) or result is None:
        return None
    return name, repr(function.get("arguments")), result
