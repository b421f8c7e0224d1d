"""A server that speaks Qwen's web chat: it keeps chats of answers that follow each other."""

import json
import random
from typing import Any
from urllib.parse import parse_qs

from attrs import define, field, frozen

from tests.support.kinds import Answered, Turn, split, sse


def fault_body(code: str, details: str) -> dict[str, Any]:
    """A fault as the server tells it."""
    return {"success": False, "request_id": "r1", "data": {"code": code, "details": details}}


@frozen
class Message:
    """What was said before an answer, and that answer."""

    parent: str | None
    news: tuple[dict[str, Any], ...]
    answer: str


@define
class QwenWebServer:
    """Answers each message with the next of `turns`."""

    turns: list[Turn] = field(factory=list)
    requests: list[tuple[str, dict[str, Any]]] = field(factory=list)
    chats: dict[str, dict[str, Message]] = field(factory=dict)
    token: str = "web-token"
    faults_as_events: bool = False
    makes_chats: bool = True
    streams: bool = True
    _made: int = 0

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        if headers.get("authorization") != f"Bearer {self.token}":
            return Answered.json(fault_body("Unauthorized", "token is not valid"), 401)
        path, _, query = target.partition("?")
        path = path.removeprefix("/v1")
        if method == "GET" and path == "/api/models":
            return Answered.json({"data": [{"id": "qwen3-max", "object": "model", "owned_by": "qwen"}]})
        request = json.loads(body)
        self.requests.append((path, request))
        if path == "/api/v2/chats/new":
            if not self.makes_chats:
                return Answered.json(fault_body("RateLimited", "later"), 429)
            self._made += 1
            chat_id = f"chat-{self._made}"
            self.chats[chat_id] = {}
            return Answered.json({"success": True, "request_id": "r1", "data": {"id": chat_id}})
        if path != "/api/v2/chat/completions":
            return Answered.json(fault_body("Not_Found", "no such path"), 404)
        return self._said(request, parse_qs(query).get("chat_id", [""])[0])

    def _said(self, request: dict[str, Any], chat_id: str) -> Answered:
        assert chat_id == request["chat_id"]
        assert request["stream"] is True
        assert request["incremental_output"] is True
        assert request["chat_mode"] == "normal"
        assert isinstance(request["timestamp"], int)
        parent = request["parent_id"]
        chat = self.chats.get(chat_id)
        if chat is None or (parent is not None and parent not in chat):
            return self._fault(fault_body("Not_Found", "the chat does not exist"))
        turn = self.turns.pop(0)
        answer_id = f"answer-{chat_id}-{len(chat) + 1}"
        chat[answer_id] = Message(parent, tuple(request["messages"]), turn.text)
        if not self.streams:
            message = {"role": "assistant", "content": turn.text}
            return Answered.json({"choices": [{"message": message}], "response_id": answer_id})
        return Answered.stream(b"".join(sse(event) for event in self.events(turn, chat_id, parent, answer_id)))

    def _fault(self, value: dict[str, Any]) -> Answered:
        return Answered.stream(sse(value)) if self.faults_as_events else Answered.json(value)

    def events(self, turn: Turn, chat_id: str, parent: str | None, answer_id: str) -> list[dict[str, Any]]:
        """The turn as events."""
        rng = random.Random(turn.text)
        created = {"chat_id": chat_id, "parent_id": parent, "response_id": answer_id}
        events: list[dict[str, Any]] = [{"response.created": created}]
        deltas: list[dict[str, Any]] = []
        if turn.thought:
            deltas += [{"content": piece, "phase": "think", "status": "typing"} for piece in split(turn.thought, rng)]
            deltas.append({"content": "", "phase": "think", "status": "finished"})
        deltas += [{"content": piece, "phase": "answer", "status": "typing"} for piece in split(turn.text, rng)]
        deltas.append({"content": "", "phase": "answer", "status": "finished"})
        for delta in deltas:
            usage = {
                "input_tokens": turn.fresh + turn.cached,
                "output_tokens": turn.output,
                "total_tokens": turn.fresh + turn.cached + turn.output,
            }
            choice: dict[str, Any] = {"delta": {"role": "assistant", **delta}}
            if turn.end != "stop" and delta is deltas[-1]:
                choice["finish_reason"] = turn.end
            events.append({"choices": [choice], "response_id": answer_id, "usage": usage})
        return events

    def line(self, chat_id: str, answer_id: str) -> list[tuple[str, str]]:
        """All that the model has before it at an answer: role and text, from the first message on."""
        said: list[tuple[str, str]] = []
        at: str | None = answer_id
        while at is not None:
            message = self.chats[chat_id][at]
            before = [(news["role"], _text(news["content"])) for news in message.news]
            said[:0] = [*before, ("assistant", message.answer)]
            at = message.parent
        return said


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
