"""Events that go out unread: that nobody can tell, and which they are."""

import json
import random
from typing import Any

import pytest

from gateway.answer.body import BodyExchange
from gateway.answer.facts import Facts
from gateway.answer.quiet import Quiet
from gateway.answer.stream import StreamExchange
from gateway.core.errors import UpstreamDisconnected
from gateway.core.events import Text
from gateway.core.limits import Limits
from strategies.reading.factory import Readers
from tests.fuzz.fuzz_quiet import HOWS, differs, hostile_text
from tests.support.chat import Paced, answer_body, answer_events, event, hear_stream, numbered_ids, prepared

ANSWERS = 500


@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, 20))])
def test_quiet_reading_is_loud_reading(share: int) -> None:
    found = [differs(f"test {share * ANSWERS + number}") for number in range(ANSWERS)]
    assert [fault for fault, _, _ in found if fault] == []
    quiet, reads = sum(count for _, count, _ in found), sum(count for _, _, count in found)
    assert quiet > reads / 8, "too few to show anything"


def begun(**options: object) -> StreamExchange:
    """A stream in which the first word has come."""
    exchange = StreamExchange(prepared(**options), make_id=numbered_ids(), limits=Limits())  # type: ignore[arg-type]
    for data in answer_events(["Well"])[:2]:
        exchange.feed(data)
    return exchange


@pytest.mark.parametrize("content", [" word", "Größe", ", and", 'say "no"', "a/b", "x\ty"])
def test_an_event_that_begins_nothing_is_not_read(content: str) -> None:
    exchange = begun()
    data = event({"content": content})
    assert exchange.feed(data) == data
    assert exchange._quiet.events == 1


@pytest.mark.parametrize("is_escaped", [False, True])
@pytest.mark.parametrize(
    "words", ["首先 我们 读取 文件， 然后 检查。", "Так и прочитаем", "“Ça” – déjà…", "한국 어 문장", "👍🏽 ✓"]
)
def test_a_text_of_any_language_goes_by_a_lane(words: str, is_escaped: bool) -> None:
    exchange = begun()
    paced = Paced(exchange)
    for number, word in enumerate(words.split()):
        data = event({"content": word})
        if is_escaped:
            data = b"data: " + json.dumps(json.loads(data[6:])).encode() + b"\n\n"
        if number:
            assert paced.goes(data) == data, word
        else:
            assert exchange.feed(data) == data
            paced.passed()


@pytest.mark.parametrize("content", ["```", "x\nAction:", "x\n{", "", "one. {x} <read", "<think>"])
def test_an_event_that_may_begin_something_is_read(content: str) -> None:
    exchange = begun()
    exchange.feed(event({"content": content}))
    assert not exchange._quiet.has_heard


@pytest.mark.parametrize(
    "content",
    [" one\n\nTwo.", " **bold**", " [1] x", " an analysis", "#", "x\n- y", "a\n\tx", "\x07", "`x`", "`x", "a `x``"],
)
def test_what_begins_as_a_marker_does_and_is_none_is_not_read(content: str) -> None:
    exchange = begun()
    data = event({"content": content})
    assert exchange.feed(data) == data
    assert exchange._quiet.events == 1


WAITS = ["word ", "line\n", "\u3000", "x\u3000", " f", " func", "data", "x \n ", "a <", "a `", "b\nw"]


@pytest.mark.parametrize("content", WAITS)
def test_an_event_that_has_to_wait_leaves_with_the_next_that_decides_it(content: str) -> None:
    exchange = begun()
    data, behind = event({"content": content}), event({"content": "xy"})
    assert exchange.feed(data) == b""
    assert exchange.held
    assert exchange.feed(behind) == data + behind
    assert exchange._quiet.events == 2
    assert not exchange.held
    assert exchange.facts.late_events == 0


@pytest.mark.parametrize("content", WAITS)
def test_an_event_that_waits_is_read_in_front_of_what_is_loud(content: str) -> None:
    exchange = begun()
    data, call = event({"content": content}), answer_events(["\n\n<read>\n<filePath>/a</filePath>\n</read>"])[1:]
    told = [exchange.feed(each) for each in (event({"content": " x"}), data, *call)]
    assert told[1] == b""
    heard = hear_stream(b"".join(answer_events(["Well"])[:2]) + b"".join(told) + exchange.finish())
    assert heard.meaning == (f"Well x{content}".rstrip(), [("read", '{"filePath":"/a"}')], "tool_calls")
    assert exchange.facts.held_bytes_max > 0


@pytest.mark.parametrize("content", WAITS)
def test_an_event_that_waits_leaves_at_the_end_and_with_an_error(content: str) -> None:
    data = event({"content": content})
    for error in (None, UpstreamDisconnected("gone")):
        exchange = begun()
        assert exchange.feed(data) == b""
        assert exchange.finish(error).startswith(data)
    exchange = begun()
    assert exchange.feed(data) == b""
    assert exchange.feed(event({}, "stop")) == data + event({}, "stop")


def test_a_comment_leaves_behind_what_waits() -> None:
    exchange = begun()
    data, behind = event({"content": "word "}), event({"content": "and"})
    assert exchange.feed(data) == b""
    assert exchange.feed(b": still there\n\n") == b""
    assert exchange.feed(behind) == data + b": still there\n\n" + behind


@pytest.mark.parametrize("contents", [("\n", "\n", " ", "then"), (" <", "re", "a", "x"), ("\n", "a", "ct", "s")])
def test_several_wait_unread_and_are_late(contents: tuple[str, ...]) -> None:
    exchange = begun()
    events = [event({"content": content}) for content in contents]
    assert [exchange.feed(each) for each in events] == [b"", b"", b"", b"".join(events)]
    assert exchange._quiet.events == 4
    assert exchange.facts.late_events == 2


def test_one_that_is_decided_leaves_though_those_behind_it_wait() -> None:
    exchange = begun()
    one, two, three = (event({"content": content}) for content in ("\n", "a <", "rea"))
    assert [exchange.feed(each) for each in (one, two, three)] == [b"", one, b""]
    assert exchange.facts.late_events == 1


def test_two_that_wait_are_read_where_the_first_is_a_line() -> None:
    exchange = begun()
    events = [event({"content": content}) for content in ("word ", " ", "\n", "then")]
    assert [exchange.feed(each) for each in events] == [b"", b"", b"", b"".join(events)]
    assert exchange.facts.late_events == 2


def test_what_is_calm_would_be_heard_as_text() -> None:
    rng = random.Random(5)
    calm = 0
    for _ in range(60):
        text = hostile_text(rng)
        listener = begun()._choice(0).listen()
        assert listener is not None
        while text:
            size = rng.choice((1, 2, 4, 9))
            part, text = text[:size], text[size:]
            written = json.dumps(part, ensure_ascii=rng.random() < 0.5)[1:-1].encode()
            if listener.calm is not None and not listener.calm.is_in(written):
                calm += 1
                undecided = listener.hear(part, len(part))
                # All but the blanks at its end, of which the listener says what becomes.
                assert undecided == (len(part) - len(part.rstrip(" ")) if listener.blanks == "wait" else 0), part
                assert listener.calm is not None or part[-1] == " "
            elif listener.hear(part, len(part)) < 0:
                break
    assert calm > 300, "too few to show anything"


def test_indentation_in_a_fence_leaves_at_once() -> None:
    exchange = begun()
    for data in answer_events([".", "\n```py", "thon\n", "x = 1"])[2:5]:
        exchange.feed(data)
    line, indent = event({"content": ":\n"}), event({"content": "    "})
    assert exchange.feed(line) == b""
    assert exchange.feed(indent) == line + indent
    assert exchange._quiet.events == 2


@pytest.mark.parametrize(
    "data",
    [
        event({"content": "x"}, "stop"),
        event({"content": "x"}, index=1),
        event({"content": "x", "tool_calls": [{"index": 0}]}),
        event({"content": "x"})[:-1],
        event({"content": "x"}).replace(b'"x"', b'"\xff"'),
        event({"content": "x"}).replace(b'"x"', b'"\\ud800"'),
        event({"content": "x"}).replace(b'"x"', b'"\\x"'),
        event({"content": "x"}).replace(b'"x"', b'"x","role":"y"'),
        event({"content": "x"}).replace(b'"x"', b'"x"y"'),
        b": comment\n\n" + event({"content": "x"}),
    ],
)
def test_an_event_of_another_mould_is_read(data: bytes) -> None:
    quiet = begun()._quiet
    assert quiet.passes(data) is None


def test_a_run_of_events_is_told_at_once_and_in_order() -> None:
    exchange = begun()
    run = event({"content": "one"}) + event({"content": "\\\u00e9 "}) + event({"content": "then"})
    assert exchange.feed(run) == run
    assert exchange._quiet.events == 3
    assert exchange._quiet.take() == ("one\\\u00e9 then", 0, b"")
    half = event({"content": "x"}).replace(b"x", b"\xc3") + event({"content": "x"}).replace(b"x", b"\xa9")
    assert exchange._quiet.passes(half) is None, "a character cut in two is none"


@pytest.mark.parametrize("stamped", [False, True])
def test_what_goes_on_with_the_value_of_a_call_is_taken_down_until_its_end_may_have_come(stamped: bool) -> None:
    lines = [f"line {number}\n" for number in range(100)]
    pieces = ["\n\n<write>\n<filePath>/a</filePath>\n<content>", "\n", *lines, "a < b\n", "</con", "tent>\n</write>"]
    exchange, gathered = begun(), []
    for number, piece in enumerate(pieces):
        stamps: dict[str, Any] = {"created": number, "obfuscation": "x"} if stamped else {}
        assert exchange.feed(event({"content": piece}, **stamps)) == b""
        gathered.append(len(exchange._quiet._gathered or ()))
    assert gathered[-3:] == [0, 0, 0], "a sign that may end the value is read"
    assert sum(count > 0 for count in gathered) >= 94
    assert max(gathered) <= 32, "a bounded number is kept"
    assert exchange.facts.late_events == len(pieces) - 1
    exchange.feed(event({}, "stop"))
    assert [call.arguments.count("line") for call in exchange.facts.calls] == [100]


def test_what_is_kept_is_bounded() -> None:
    exchange = begun()
    for _ in range(40):
        data = event({"content": "x" * 4000})
        assert exchange.feed(data) == data
        assert exchange._quiet._size < (32 << 10) + 8000
    assert exchange.finish().endswith(b"\n\n")


STAMPED = [
    event({"content": f" word {number}"}, created=number * number, obfuscation="x" * (number % 7), number=-number)
    for number in range(40)
]


def test_events_that_differ_only_in_what_their_server_stamps_them_with_are_quiet() -> None:
    exchange = begun()
    for data in STAMPED:
        assert exchange.feed(data) == data
    assert exchange._quiet.events == 38  # the first two have to be compared
    assert exchange.feed(b"".join(STAMPED[:3])) == b"".join(STAMPED[:3])
    assert exchange._quiet.events == 41


@pytest.mark.parametrize(
    "odd",
    [
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        {"created": 1.5},
        {"created": True},
        {"obfuscation": 'a"b'},
        {"obfuscation": "\u00e4"},
        {"number": None},
        {"more": 1},
        {"error": 7},
    ],
)
def test_a_stamp_that_may_say_something_is_read(odd: dict[str, Any]) -> None:
    exchange = begun()
    for data in STAMPED[:4]:
        exchange.feed(data)
    stamps: dict[str, Any] = {"created": 3, "obfuscation": "x", "number": 4, **odd}
    exchange.feed(event({"content": " x"}, **stamps))
    assert exchange._quiet.events == 0


@pytest.mark.parametrize("name", ["usage", "error", "object"])
def test_a_field_with_a_meaning_is_no_stamp(name: str) -> None:
    exchange = begun()
    for number in range(6):
        odd: dict[str, Any] = {name: str(number)}
        exchange.feed(event({"content": f" word {number}"}, **odd))
        assert exchange._quiet.events == 0


def test_a_chunk_of_our_own_is_made_after_the_last_stamped_event() -> None:
    exchange = begun()
    for data in STAMPED:
        exchange.feed(data)
    exchange.feed(b": a comment\n\n")
    assert exchange._queue.seen == STAMPED[-1][len(b"data: ") : -2]


def test_nothing_is_quiet_before_it_is_known_what_is_loud() -> None:
    assert Quiet(Facts()).passes(event({"content": "x"})) is None


def test_a_whole_answer_without_a_marker_is_text_and_needs_no_reading() -> None:
    silent = 0
    for number in range(1500):
        rng = random.Random(f"whole {number}")
        how = rng.choice(HOWS)
        text = hostile_text(rng)[: rng.choice((20, 80, 400))]
        assert how.make_reader is not None
        if isinstance(how.make_reader, Readers) and how.make_reader.is_all_text(text):
            silent += 1
            reader = how.make_reader()
            events = [*reader.feed(text), *reader.finish("stop")]
            assert {type(each) for each in events} <= {Text}
            assert "".join(each.raw for each in events) == text
    assert silent > 100, "too few to show anything"


def test_what_is_not_read_is_kept_all_the_same() -> None:
    exchange = BodyExchange(prepared(), make_id=numbered_ids(), limits=Limits(), keep_text=True)
    body = answer_body("All is well.\n")
    assert exchange.transform(body) == body
    assert exchange.facts.transcripts[0].text == "All is well.\n"
    assert exchange.facts.transcripts[0].finish == "stop"
