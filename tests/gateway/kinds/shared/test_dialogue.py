"""What all dialogues with servers of other wires do alike, whatever the kind."""

import json
from typing import Any

import pytest

from gateway.core.errors import UpstreamBadReply
from gateway.core.ports import Memory
from gateway.kinds.shared.dialogue import TranslatingDialogue
from gateway.kinds.shared.faults import Fault, fault_of_status
from gateway.kinds.shared.port import Reply, Situation

SITUATION = Situation(now=1.0, make_id=str)
BODY = {"model": "m", "stream": True}


class Plain(TranslatingDialogue):
    """A wire of single words."""

    def _event(self, data: bytes) -> None:
        value = json.loads(data)
        if "error" in value:
            self._refuse(value["error"])
        self._answer.text(value.get("text", ""))
        self._answer.finish_reason = value.get("end")

    def _whole(self, body: bytes) -> None:
        if b"text" not in body:
            raise UpstreamBadReply("no text")
        self._answer.text(json.loads(body)["text"])

    def _fault(self, value: Any, status: int) -> Fault | None:
        return fault_of_status(status, value["error"]) if "error" in value else None

    def _kept(self) -> bytes | None:
        return b"kept" if "keep" in self._answer.content else None

    def _key(self, message: Any) -> str | None:
        return message["content"] or None


def dialogue() -> Plain:
    return Plain(BODY, SITUATION, ttl_s=3.0)


def test_a_stream_is_complete_behind_its_reason_and_then_remembered() -> None:
    talk = dialogue()
    assert not talk.may_be_void
    assert b"keep it" in talk.feed(b'data: {"text": "keep it"}\n\n')
    assert talk.remember() == ()
    assert b'"stop"' in talk.feed(b'data: {"end": "stop"}\n\n') + talk.finish()
    assert talk.remember() == (Memory(key="keep it", value=b"kept", ttl_s=3.0),)
    assert talk.remember({"content": "delivered"}) == (Memory(key="delivered", value=b"kept", ttl_s=3.0),)
    assert talk.finish() == b""


@pytest.mark.parametrize("said", [b"", b'data: {"text": "keep it"}\n\n'])
def test_a_stream_without_a_reason_has_no_end(said: bytes) -> None:
    talk = dialogue()
    assert b"[DONE]" not in talk.feed(said) + talk.finish()
    assert talk.remember() == ()


def test_what_is_not_worth_keeping_or_has_no_name_is_not_kept() -> None:
    for text, delivered in (("other", None), ("keep", {"content": ""})):
        talk = dialogue()
        talk.answered(200, {}, json.dumps({"text": text}).encode())
        assert talk.remember(delivered) == ()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"text": "a"}', (200, "choices")),
        (201, b'{"text": "a"}', (201, "choices")),
        (200, b'data: {"text": "a", "end": "stop"}\n\n', (200, "choices")),
        (200, b'data: {"text": "a"}\n\n', (502, "error")),
        (200, b'{"error": "no"}', (500, "error")),
        (200, b"{}", (502, "error")),
        (200, b"\xff", (502, "error")),
        (429, b'{"error": "slow"}', (429, "error")),
        (302, b"", (502, "error")),
    ],
)
def test_a_whole_answer_is_a_completion_or_an_error(status: int, body: bytes, told: tuple[int, str]) -> None:
    reply = dialogue().answered(status, {}, body)
    assert isinstance(reply, Reply)
    assert (reply.status, told[1] in json.loads(reply.body)) == (told[0], True)


def test_a_fault_in_a_stream_is_told_once() -> None:
    talk = dialogue()
    assert b"slow down" in talk.feed(b'data: {"error": "slow down"}\n\ndata: {"text": "b"}\n\n')
    assert talk.feed(b'data: {"text": "c", "end": "stop"}\n\n') + talk.finish() == b""
    assert talk.remember() == ()
