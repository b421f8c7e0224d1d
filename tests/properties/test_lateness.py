"""Text leaves as soon as it is decided: measured in events, in lock-step, over all kinds of answers, cuts and readers.

Nothing here looks at a clock. `waits` also checks of each answer that its bytes are the model server's own.
"""

import json
import random
import re
from collections.abc import Iterable
from itertools import product

import pytest
from attrs import evolve

from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from strategies.reading.reader import Reader
from tests.bench.lateness import (
    BOUNDS,
    CUTS,
    JSON_MOST,
    SHORT_SHARES,
    Bound,
    assert_blanks_moved,
    share_late,
    waits,
    ways,
)
from tests.support.chat import answer_events, chunks_of, event, hear_stream, numbered_ids, prepared
from tests.support.cost import steps
from tests.support.fragments import Way, check, hostile_text
from tests.support.fragments import ways as reader_ways
from tests.support.golden import BARE, LINES, SAMPLES, SHORT
from tests.support.reading import read_every_way

CLOSE = ("recovery deepseek-chat", "native gpt-4o", "recovery gpt-oss-20b", "xml_prompt generic_xml", "xml_text roo")
"""Those that are looked at in every cut."""
FAR = tuple(name for name in ways() if name not in CLOSE)


def check_waits(way: str, text: str, cut: str, bound: Bound) -> None:
    waited = waits(ways()[way], list(CUTS[cut](text)))
    assert share_late(waited) <= bound.share
    assert max(waited) <= bound.most


def everywhere(kinds: Iterable[str]) -> pytest.MarkDecorator:
    """Every kind in every cut for the close ways: all for the first, every third for the others unless asked for."""
    found = []
    for number, (kind, cut, way) in enumerate(product(kinds, CUTS, CLOSE)):
        is_long = way != CLOSE[0] and number % 3
        found.append(pytest.param(kind, cut, way, marks=[pytest.mark.long] if is_long else []))
    return pytest.mark.parametrize(("kind", "cut", "way"), found)


def bound_of(kind: str, cut: str) -> Bound:
    bound = BOUNDS[cut]
    return evolve(bound, most=JSON_MOST) if kind == "json" and cut != "lines" else bound


@everywhere(SAMPLES)
def test_text_is_not_late(kind: str, cut: str, way: str) -> None:
    for text in SAMPLES[kind]:
        check_waits(way, text, cut, bound_of(kind, cut))


def bound_of_lines(kind: str, cut: str) -> Bound:
    is_around_code = kind == "fences" and cut in ("tokens", "merged", "words")
    return evolve(BOUNDS[cut], share=SHORT_SHARES["code"]) if is_around_code else BOUNDS[cut]


@pytest.mark.parametrize("way", CLOSE)
def test_short_lines_are_not_late(way: str) -> None:
    for (kind, texts), cut in product(LINES.items(), CUTS):
        check_waits(way, texts[0], cut, bound_of_lines(kind, cut))


PARAGRAPHS = (
    "## Why\n\nThe cache is keyed by the lock file.\r\n\r\nThat changes each day:\t\n\n- so it is never hit\n\n"
)
"""One line each, and blank ones between them."""


@pytest.mark.parametrize("way", [way for way in ways() if not way.startswith(("native", "xml_text"))])
def test_a_paragraph_of_one_line_does_not_wait_for_the_next(way: str) -> None:
    for text in (PARAGRAPHS * 20, *(re.sub(r"(?<=\S)\n(?=\S)", " ", text) for text in SAMPLES["english"])):
        check_waits(way, text, "lines", BOUNDS["lines"])


LINE = "A line that is long enough."


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([f"{LINE}\n", "\n", "Done."], [LINE, "\n\n", "Done."]),
        ([f"{LINE}\n", "\n", f"{LINE} \n", "\r\n", "<"], [LINE, "\n\n", LINE, " \n\r\n", "<"]),
        ([f"{LINE}\n", "\n"], [LINE, "\n\n"]),
        ([f"{LINE}\n", "<rea", "l>\n"], [LINE, "\n<rea", "l>\n"]),
        ([f"{LINE}\n", "Done."], [f"{LINE}\n", "Done."]),
        (["short\n", "\n", "Done."], ["short\n", "\n", "Done."]),
        (["\n", "short\n", "\n", "two\n", "\n", "3"], ["\n", "short", "\n\n", "two", "\n\n", "3"]),
        (["\n", "};\n", "\n", "x", " y\n", "\n", "z"], ["\n", "};\n", "\n", "x", " y\n", "\n", "z"]),
        ([" a\\n", "b\n", "\n", "c \\", "n\n", "\n", "x"], [" a\\n", "b\n", "\n", "c \\", "n\n", "\n", "x"]),
        ([f"{LINE} C:\\n", "\n", "\n", "Done."], [f"{LINE} C:\\n", "\n", "\n", "Done."]),
        ([f"{LINE} C:\\\n", "\n", "Done."], [f"{LINE} C:\\", "\n\n", "Done."]),
        ([f"{LINE} `<read", "\n", "Done."], [f"{LINE} `<read", "\n", "Done."]),
        ([LINE + "\n" * 65, "\n", "Done."], [LINE + "\n" * 65, "\n", "Done."]),
        ([f"{LINE}\n", "\n", "<read>\n<filePath>/a</filePath>\n</read>"], [LINE]),
    ],
    ids=[
        "blank line",
        "again",
        "end",
        "marker",
        "decided in time",
        "token",
        "short lines",
        "signs, or no whole line",
        "letters like a line break",
        "letters like an escape",
        "backslash",
        "no white space",
        "very much of it",
        "call",
    ],
)
def test_only_lines_leave_white_space_to_the_next_event(parts: list[str], told: list[str]) -> None:
    head, *given = answer_events(["First.", *parts])
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
    out = [exchange.feed(data) for data in (head, *given)]
    found = [chunk["choices"][0]["delta"].get("content") for chunk in chunks_of(b"".join(out)) if chunk]
    assert [each for each in found if each] == ["First.", *told]
    whole = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
    assert hear_stream(whole.feed(b"".join((head, *given)))).meaning == hear_stream(b"".join(out)).meaning


LINES_AND_PIECES = (
    *(
        "one\n",
        "\n",
        "two words\n",
        " \n",
        "```\n",
        "```python\n",
        "x = 1\n",
        "* a\n",
        "*",
        "**",
        "\t\n",
        "\\n",
        "\\\n",
    ),
    *("é\n", "😀 x\n", "a", "\r\n", "line\r\n", "};\n", "---\n", "read\n", "{\n", "[\n", '"q"\n', "<a>\n", "  k:\n"),
    *("    v\n", "A line that has more than twenty-four bytes.\n", "#\n", "word ", "n\n", "\\", "1\n"),
)


@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, 20))])
def test_however_lines_come_only_they_leave_white_space_to_the_next(share: int) -> None:
    for seed in range(400 * share, 400 * share + 400):
        rng = random.Random(seed)
        exchange = StreamExchange(ways()[rng.choice(CLOSE)], make_id=numbered_ids(), limits=Limits())
        events = answer_events(rng.choices(LINES_AND_PIECES, k=rng.randint(1, 40)))
        out, at = b"", 0
        while at < len(events):
            count = rng.choice((1, 1, 1, 2, 5))
            out += exchange.feed(b"".join(events[at : at + count]))
            at += count
        out += exchange.finish()
        if out != b"".join(events) and not hear_stream(out).calls:
            assert_blanks_moved(events, [each + b"\n\n" for each in out.split(b"\n\n")[:-1]])


@pytest.mark.parametrize("way", FAR)
def test_text_is_not_late_under_any_dialect(way: str) -> None:
    rng = random.Random(way)
    for kind, texts in SAMPLES.items():
        cut = rng.choice(["tokens", "merged", *CUTS])
        check_waits(way, rng.choice(texts), cut, bound_of(kind, cut))
    for texts in BARE.values():
        check_waits(way, rng.choice(texts), rng.choice(["tokens", "merged"]), BOUNDS["tokens"])
    for kind in rng.sample([*LINES], 2):
        cut = rng.choice([*CUTS])
        check_waits(way, LINES[kind][0], cut, bound_of_lines(kind, cut))


@everywhere(SHORT)
def test_a_fence_holds_little_of_a_short_answer(kind: str, cut: str, way: str) -> None:
    is_bounded = cut in ("tokens", "merged", "words")
    for text in SHORT[kind]:
        bound = evolve(bound_of(kind, cut), share=SHORT_SHARES[kind] if is_bounded else 1.0)
        check_waits(way, text, cut, bound)


@pytest.mark.parametrize("way", CLOSE)
def test_a_fence_that_may_carry_a_call_holds_its_first_line_and_the_white_space_before_it(way: str) -> None:
    parts = [":", "\n\n", "```", "python", "\n", "seen", " =", " set", "()\n", "```", "\n\n", "Then", " read", " it"]
    waited = waits(ways()[way], parts * 20)
    assert sum(each >= 2 for each in waited) <= 3 * 20
    assert max(waited) <= 4


@everywhere(BARE)
def test_code_markup_and_data_outside_of_a_fence_are_not_late(kind: str, cut: str, way: str) -> None:
    for text in BARE[kind]:
        check_waits(way, text, cut, BOUNDS[cut])


@pytest.mark.parametrize(
    "parts",
    [
        ["I ", "will ", "open ", "the ", "file ", "and ", "read ", "it."],
        ["The", " anal", "ysis", " of", " all", " comm", "ents", " counts"],
        ["see", " `", "<", "read", ">", "`", " or", " `", "</", "read", ">", "`", "."],
        ["a", " [", "invoke", "]", " b", " [", "list", "]", " c"],
        ["##", " What", " now", "?", " **", "Bold", "**", " words"],
        ["mal", "func", "tion", " and", " dys", "func", "tion", "al"],
    ],
    ids=["blanks behind", "words of markers", "inline code", "brackets of results", "marks", "inside a word"],
)
def test_what_cannot_open_a_call_waits_for_one_event_at_most(parts: list[str]) -> None:
    for way in CLOSE:
        assert max(waits(ways()[way], parts)) <= 1


@pytest.mark.parametrize(
    "parts",
    [
        ["```python\n", "x = 1\n", "if x:\n", "    ", "y = 2\n", "        ", "z = 3\n", "```", "\n", "Done."],
        ["```c\nint x;\n", "``", "`", "\nDone."],
        ["```ru", "st\n", "x\n```\n", "Done."],
        ["```", "bash", "\n", "make", " all", "\n", "```", "\nDone."],
    ],
    ids=["indentation", "closing line", "opening line of another language", "one that no tool is called in"],
)
def test_code_in_a_fence_waits_for_one_event_at_most(parts: list[str]) -> None:
    for way in CLOSE:
        assert max(waits(ways()[way], parts)) <= 1


def test_what_stands_in_front_of_a_held_event_leaves_in_one_read_as_in_many() -> None:
    for way in CLOSE:
        events = answer_events(["One ", "two ", "three ", "four <", "read", "> five"])
        exchange = StreamExchange(ways()[way], make_id=numbered_ids(), limits=Limits())
        out = exchange.feed(b"".join(events[:5]))
        assert b"".join(events[:4]).startswith(out) or out.startswith(b"".join(events[:4]))
        assert out.count(b"\n\n") >= 4
        assert out + exchange.feed(b"".join(events[5:])) + exchange.finish() == b"".join(events)


@pytest.mark.parametrize(
    "keys", ['"id": {}, "name": "item {}"', '"action": "login", "user": "u{}"', '"name": "read", "size": {}']
)
def test_a_log_of_json_does_not_wait_for_its_end(keys: str) -> None:
    text = "".join("{" + keys.replace("{}", str(number % 10)) + ', "tags": ["a", "b"]}\n' for number in range(12))
    for way in CLOSE:
        for cut, most in (("lines", 2), ("tokens", 40)):
            assert max(waits(ways()[way], list(CUTS[cut](text)))) <= most


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_reads_of_any_size_give_the_same_bytes(seed: int, ascii_only: bool) -> None:
    rng = random.Random(seed)
    words = [
        "the ",
        "größe ",
        "\n",
        "\t",
        "🧪 ",
        '"',
        "\\",
        "<",
        "<re",
        "\n\n",
        "```\n",
        "a",
        " ",
        "功能 ",
        "{",
        "</s>",
    ]
    parts = [rng.choice(words) for _ in range(rng.randint(1, 60))]
    events = [event({"content": part}) for part in parts]
    if ascii_only:
        heads = [part.partition(b'"content": ') for part in events]
        events = [
            head + key + json.dumps(part).encode() + tail[len(json.dumps(part, ensure_ascii=False).encode()) :]
            for (head, key, tail), part in zip(heads, parts, strict=True)
        ]
    events = [*events, event({}, "stop"), b"data: [DONE]\n\n"]
    whole = b"".join(events)
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
    out, at = b"", 0
    while at < len(whole):
        size = rng.choice((1, 40, len(events[1]), 3 * len(events[1]), 2000))
        out += exchange.feed(whole[at : at + size])
        at += size
        assert whole.startswith(out)
    out += exchange.finish()
    told = hear_stream(out)
    assert told.calls or out == whole or told.content == "".join(parts).rstrip() or told.content == "".join(parts)


def test_a_call_behind_text_that_has_left_comes_as_it_did() -> None:
    call = "<read>\n<filePath>/a.py</filePath>\n</read>"
    parts = ["I ", "will ", "look ", "at ", "it. ", "\n\n", *call]
    heard = hear_stream(
        b"".join(
            StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits()).feed(b"".join(answer_events(parts)))
            for _ in range(1)
        )
    )
    assert heard.meaning == ("I will look at it.", [("read", '{"filePath":"/a.py"}')], "tool_calls")
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
    told = b"".join([*map(exchange.feed, answer_events(parts)), exchange.finish()])
    assert hear_stream(told).meaning == heard.meaning


def test_white_space_in_front_of_a_call_in_a_fence_does_not_depend_on_cuts() -> None:
    call = '<|tool_call|>[{"name": "read", "arguments": {"filePath": "a"}}]'
    for space in ("\n", "\n\n", "\n    ", "\n    \n", "    \n", " ", "\n\t", "\r\n  \r\n", "\r\n\r\n"):
        read_every_way(f"```c\nint x;{space}{call}")
        read_every_way(f"```c\n{space}{call}")


def test_what_was_told_ahead_changes_nothing_that_is_read() -> None:
    rng = random.Random(7)
    every = reader_ways()
    for number in range(200):
        text = hostile_text(rng)
        check(text, every[number % len(every)], sorted(rng.randrange(len(text) + 1) for _ in range(12)))


def test_held_text_is_bounded_while_events_leave() -> None:
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
    most = 0
    for data in answer_events(["word "] * 5000):
        exchange.feed(data)
        most = max(most, exchange.facts.held_bytes_max)
    assert most < 300


def test_a_run_costs_the_same_for_each_of_its_events() -> None:
    def cost(count: int) -> float:
        events = answer_events(["word\\n "] * count)
        exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
        return steps(lambda: [exchange.feed(data) for data in events], most=10_000_000) / count

    assert cost(3000) < 1.1 * cost(500)


def test_a_reader_holds_nothing_that_it_has_told() -> None:
    reader = Way().reader()
    assert isinstance(reader, Reader)
    told = "".join(event.raw for event in reader.feed("See `<re"))
    assert told == "See `<re"
    assert reader.held == 0
    assert reader.idle
    assert "".join(event.raw for event in [*reader.feed("ad>`"), *reader.finish("stop")]) == "ad>`"
