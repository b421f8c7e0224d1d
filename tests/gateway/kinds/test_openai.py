"""The kind that needs no translation."""

from gateway.kinds.openai import OpenAiKind
from gateway.kinds.shared.port import Reply, Situation

RAW = b'{ "model":"m", "messages":[] , "stream":true }'


def test_every_byte_goes_through_as_it_is() -> None:
    dialogue = OpenAiKind().begin({"stream": True}, RAW, situation=Situation(now=1.0, make_id=str), known={})
    assert dialogue.ask.body is RAW
    assert (dialogue.ask.path, dialogue.ask.streams, dialogue.again) == ("/chat/completions", True, None)
    piece = b"data: \xff half"
    assert dialogue.feed(piece) is piece
    assert dialogue.finish() == b""
    assert dialogue.answered(418, {}, piece) == Reply(status=418, body=piece)
    assert dialogue.remember() == ()


def test_the_key_is_a_bearer() -> None:
    kind = OpenAiKind()
    assert kind.credentials("k") == (("Authorization", "Bearer k"),)
    assert kind.credentials(None) == ()
    assert kind.keys({}) == ()
    assert kind.models(RAW) is RAW
    assert (kind.models_ask().method, kind.models_ask().path) == ("GET", "/models")
