"""The surface of chat: every byte as it is, and the words of errors that chat clients know."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InvalidRequest, UpstreamRejected
from gateway.surfaces.chat import CHAT, KEEP_ALIVE, telling
from gateway.surfaces.port import Situation

SITUATION = Situation(now=0.0, request_id="req_1", unique="a" * 24, secret=b"", scope="")


@given(st.lists(st.binary()))
def test_every_byte_of_an_answer_goes_through(pieces: list[bytes]) -> None:
    told = telling()
    out = told.begin(7) + b"".join(map(told.feed, pieces)) + told.finish()
    assert out == b"".join(pieces)
    assert told.whole(out) == out
    assert told.is_identity
    assert told.answer_id is None
    assert told.remember() == ()


def test_what_waits_is_told_by_a_comment() -> None:
    assert telling().keep_alive() == KEEP_ALIVE
    assert KEEP_ALIVE == b": keep-alive\n\n"


def test_a_request_keeps_its_bytes() -> None:
    raw = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "odd": 1}'
    asked = CHAT.accept(raw, SITUATION, {})
    assert asked.request.raw is raw
    assert asked.recall == asked.dropped == asked.mended == asked.left_out == ()


def test_an_error_is_in_openais_words_and_the_servers_own_stay() -> None:
    status, body = CHAT.error(InvalidRequest("no", param="model"), status=400, request_id="req_1")
    assert status == 400
    assert msgspec.json.decode(body)["error"]["param"] == "model"
    own = UpstreamRejected("x", status=429, payload=b'{"error":{"message":"slow"}}')
    assert CHAT.error(own, status=429, request_id="req_1") == (429, b'{"error":{"message":"slow"}}')
    assert CHAT.head("req_1") == {}
