"""No step of an answer grows with what is held: counted, not timed."""

from collections.abc import Sequence

import pytest

from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from tests.support.chat import answer_events, hear_stream, numbered_ids
from tests.support.cost import steps
from tests.support.lateness import ways

pytestmark = pytest.mark.cost

MOST = 60_000
"""Calls of functions in a step: some five milliseconds of such small ones."""
CALL = "<read>\n<filePath>/a</filePath>\n</read>"
BLANKS = ["    "] * 12_000


def told(events: Sequence[bytes], at_once: int, way: str) -> list[bytes]:
    """What each step gives out, none of which costs too much."""
    exchange = StreamExchange(ways()[way], make_id=numbered_ids(), limits=Limits(), asks=1)
    out: list[bytes] = []

    def work_off() -> None:
        while exchange.busy:
            steps(lambda: out.append(exchange.step()), most=MOST)

    for at in range(0, len(events), at_once):
        data = b"".join(events[at : at + at_once])
        steps(lambda data=data: out.append(exchange.step(data)), most=MOST)  # type: ignore[misc]
        work_off()
    steps(lambda: out.append(exchange.close()), most=MOST)
    work_off()
    return out


@pytest.mark.parametrize("behind", [["Done."], [], [CALL], ["<rea", "l>"]], ids=["text", "end", "call", "marker"])
@pytest.mark.parametrize(("at_once", "way"), [(300, "recovery deepseek-chat"), (1, "xml_prompt generic_xml")])
def test_white_space_in_very_many_events_goes_in_steps(behind: list[str], at_once: int, way: str) -> None:
    events = answer_events(["Hi.", *BLANKS, *behind])
    out = told(events, at_once, way)
    if behind == [CALL]:
        assert hear_stream(b"".join(out)).meaning == ("Hi.", [("read", '{"filePath":"/a"}')], "tool_calls")
    else:
        assert b"".join(out) == b"".join(events)
    assert max(map(len, out)) < 1_000_000, "not all of it in one go"


@pytest.mark.parametrize("behind", [["Done."], [CALL]], ids=["text", "call"])
def test_events_of_many_moulds_are_few_once_they_are_very_many(behind: list[str]) -> None:
    parts = ["Hi.", *["  "] * 12_000, *behind]
    filler = b'"system_fingerprint": "' + b"f" * 500
    made = answer_events(parts)
    events = [
        each.replace(b'"created": 1', b'"created": %d' % at).replace(b'"system_fingerprint": "fp', filler)
        for at, each in enumerate(made)
    ]
    heard = hear_stream(b"".join(told(events, 100, "recovery deepseek-chat")))
    if behind == [CALL]:
        assert heard.meaning == ("Hi.", [("read", '{"filePath":"/a"}')], "tool_calls")
    else:
        assert heard.meaning == ("".join(parts), [], "stop")
