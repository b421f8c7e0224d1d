"""The one equality: however an answer is cut, into chunks and bytes, the client hears what the whole answer says."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.dialects.rows import TABLE
from tests.support.chat import DONE, answer_body, event, hear_body, hear_stream, prepared, stream, whole

EXAMPLES = [row.example for row in TABLE if row.example]
NOISE = [
    "<",
    "</",
    "`",
    "```\n",
    "\n",
    "\n\n",
    " ",
    "a < b",
    "<read>",
    "</read>",
    "<think>",
    "</think>",
    "{",
    '{"name": ',
    "Größe",
    "\U0001f600",
    "\u2028",
    "\\",
    '"',
    "\x00",
    "> ",
    "for example:\n",
]
FRAGMENTS = st.lists(st.sampled_from([*EXAMPLES, *NOISE]) | st.text(max_size=12), max_size=8).map("".join)
FINISHES = st.sampled_from(["stop", "length", "tool_calls"])


def escaped(text: str, rng: random.Random) -> bytes:
    """The text as a JSON string, some characters as escapes, as servers in other languages write them."""
    out = []
    for char in text:
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        out.append(json.dumps(char)[1:-1] if rng.random() < 0.3 else f"\\u{ord(char):04x}" if char in "<>&" else plain)
    return '"'.join(("", "".join(out), "")).encode()


def cut(text: str, rng: random.Random) -> list[str]:
    at, parts = 0, []
    while at < len(text):
        size = rng.choice((1, 1, 2, 3, 5, 8, 40))
        parts.append(text[at : at + size])
        at += size
    return parts


@given(text=FRAGMENTS, finish=FINISHES, seed=st.integers(0, 1 << 30), first=st.booleans(), wait=st.booleans())
@settings(max_examples=250, deadline=None)
def test_stream_says_what_the_whole_answer_says(text, finish, seed, first, wait):
    rng = random.Random(seed)
    how = prepared(prompted=None, first_only=first, wait=wait)
    expected = hear_body(whole(answer_body(text, finish), how)[0])
    events = [event({"role": "assistant", "content": ""})]
    for part in cut(text, rng):
        mark = "\ufffc\ufffc"
        head, tail = event({"content": mark}).split(json.dumps(mark, ensure_ascii=False).encode())
        events.append(head + escaped(part, rng) + tail)
    events += [event({}, finish), DONE]
    data = b"".join(events)
    pieces = []
    while data:
        size = rng.choice((1, 2, 7, 64, 500, 4000))
        pieces.append(data[:size])
        data = data[size:]
    out, _ = stream(pieces, how)
    heard = hear_stream(out)
    assert heard.done
    assert heard.error is None
    assert heard.meaning == expected.meaning
    if not heard.calls:
        assert out == b"".join(events)
        assert (heard.content or "") == text


@given(text=FRAGMENTS, seed=st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_incremental_stream_is_cut_independent(text, seed):
    rng = random.Random(seed)
    how = prepared(stream_arguments="incremental")
    heard = []
    for parts in ([text] if text else [], cut(text, rng)):
        events = [*(event({"role": "assistant", "content": part}) for part in parts), event({}, "stop"), DONE]
        heard.append(hear_stream(stream(events, how)[0]))
    assert heard[0].meaning == heard[1].meaning
    assert (heard[0].error is None) == (heard[1].error is None)
