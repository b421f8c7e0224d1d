"""A reader that fails costs the reading, never the answer."""

import pytest

from gateway.answer.body import BodyExchange
from gateway.answer.stages import GuardedReader
from gateway.answer.stream import StreamExchange
from gateway.core.events import Args, Drop, End, Event, Note, Start, Text, Verdict
from gateway.core.limits import Limits
from strategies.base import AnswerReader, Options, Prepared, Shape
from strategies.reading.candidate import Candidate
from strategies.reading.factory import reader_factory
from strategies.reading.outlet import Outlet
from strategies.reading.reader import Reader
from strategies.reading.window import Window
from tests.support.chat import answer_body, answer_events, hear_body, hear_stream, numbered_ids
from tests.support.reading import AGENT_TOOLS


class Failing:
    """Holds two pieces back, then raises."""

    def __init__(self, *, at: int = 3, in_call: bool = False) -> None:
        self._left = at
        self._in_call = in_call
        self._held = ""

    idle = False

    def feed(self, text: str) -> list[Event]:
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("secret words of the model")
        if self._in_call and not self._held:
            self._held = "x"
            return [Start(text, "read")]
        if self._held:
            self._held += text
            return []
        self._held = text[-2:]
        return [Text(text[:-2])]

    def finish(self, reason: str) -> list[Event]:
        raise ValueError(reason)


def how(**options: object) -> Prepared:
    return Prepared(strategy="test", body=b"{}", make_reader=lambda: Failing(**options), shape=Shape())  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [1, 2, 3, 99])
def test_all_text_comes_back_when_a_reader_fails(at: int) -> None:
    events = answer_events(["Hello ", "dear ", "world", ", bye"])
    exchange = StreamExchange(how(at=at), make_id=numbered_ids(), limits=Limits())
    out = b"".join([*(exchange.feed(event) for event in events), exchange.finish()])
    heard = hear_stream(out)
    assert heard.content == "Hello dear world, bye"
    assert heard.done
    assert heard.error is None
    assert [verdict.reasons[-1] for verdict in exchange.facts.refused] == ["internal"]
    assert "secret" not in str(exchange.facts.refused)


def test_whole_answer_comes_back_when_a_reader_fails() -> None:
    body = answer_body("Hello dear world")
    exchange = BodyExchange(how(at=1), make_id=numbered_ids(), limits=Limits())
    assert hear_body(exchange.transform(body)).content == "Hello dear world"


def test_call_that_had_begun_breaks_visibly() -> None:
    exchange = StreamExchange(how(at=2, in_call=True), make_id=numbered_ids(), limits=Limits())
    out = b"".join([*(exchange.feed(event) for event in answer_events(["ab", "cd"])), exchange.finish()])
    assert hear_stream(out).error
    assert not hear_stream(out).done


def test_a_fault_behind_a_whole_call_costs_the_call_nothing() -> None:
    class Ends(Failing):
        def feed(self, text: str) -> list[Event]:
            if text == "b":
                raise RuntimeError
            verdict = Verdict(dialect="d", name="read", score=99, accepted=True)
            return [Start("", "read"), Args("", "{}"), End(text, "read", "{}", verdict)]

    prepared = Prepared(strategy="test", body=b"{}", make_reader=Ends, shape=Shape(keep_trailing=True))
    exchange = StreamExchange(prepared, make_id=numbered_ids(), limits=Limits())
    out = b"".join([*(exchange.feed(event) for event in answer_events(["a", "b", "c"])), exchange.finish()])
    heard = hear_stream(out)
    assert ([call["arguments"] for call in heard.calls], heard.content, heard.error) == (["{}"], "bc", None)


def test_dropped_text_is_not_given_back_twice() -> None:
    class Drops(Failing):
        def feed(self, text: str) -> list[Event]:
            if text == "b":
                raise RuntimeError
            return [Drop(text, "space")]

    prepared = Prepared(strategy="test", body=b"{}", make_reader=Drops, shape=Shape())
    exchange = StreamExchange(prepared, make_id=numbered_ids(), limits=Limits())
    out = b"".join([*(exchange.feed(event) for event in answer_events(["a", "b", "c"])), exchange.finish()])
    assert hear_stream(out).content == "bc"


def test_a_reader_that_cannot_be_made_leaves_all_as_text() -> None:
    def make() -> AnswerReader:
        raise LookupError("no table")

    reader = GuardedReader(make)
    assert reader.idle
    events = [*reader.feed("<read_file>"), *reader.feed("x"), *reader.finish("stop")]
    assert "".join(event.raw for event in events) == "<read_file>x"
    [note] = [event for event in events if isinstance(event, Note)]
    assert note.verdict.reasons == ("the reader failed: LookupError", "internal")
    assert reader.fault == "LookupError"
    assert [type(event) for event in GuardedReader(make).finish("stop")] == [Note]


def test_an_answer_whose_reader_cannot_be_made_is_the_upstreams() -> None:
    def make() -> AnswerReader:
        raise LookupError("no table")

    how = Prepared(strategy="s", body=b"", make_reader=make)
    whole = answer_body("<read_file>\n<path>a</path>\n</read_file>")
    exchange = BodyExchange(how, make_id=numbered_ids(), limits=Limits())
    assert exchange.transform(whole) == whole
    assert [verdict.reasons[-1] for verdict in exchange.facts.refused] == ["internal"]


PLACES = [
    (Reader, "_flows"),
    (Reader, "_works"),
    (Window, "push"),
    (Candidate, "feed"),
    (Candidate, "_consume"),
    (Outlet, "taken"),
    (Outlet, "finish"),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
def test_all_text_comes_back_wherever_our_own_reader_fails(
    monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    """It keeps the text itself: of that with which it failed all or nothing."""
    owner, name = place
    inner, left = getattr(owner, name), 0

    def fails(self: object, *given: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise RuntimeError
        return inner(self, *given, **named)

    text = 'I look. `a` <b>\n<read>\n<filePath>/a.py</filePath>\n</read>\n```json\n{"a": 1}\n```\n<read>\n<filePath>/b'
    monkeypatch.setattr(owner, name, fails)
    failed = 0
    for size in (1, 3, 7, 1000):
        for at in (1, 2, 3, 5, 9, 20, 40):
            left = at
            reader = GuardedReader(
                lambda: reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=None)()
            )
            events = [event for start in range(0, len(text), size) for event in reader.feed(text[start : start + size])]
            events += reader.finish("stop")
            assert "".join(event.raw for event in events) == text
            failed += reader.fault is not None
    assert failed
