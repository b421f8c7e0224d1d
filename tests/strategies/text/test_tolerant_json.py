import json
import math
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from strategies.text.dumping import dumps
from strategies.text.escapes import lost_backslash
from strategies.text.strict_json import loads_strict
from strategies.text.tolerant_json import CHOSEN, JsonFault, parse
from tests.support.cost import assert_linear

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200)
@given(value=JSON)
@example(value={"a": "\u2028\u2029 \x00\x7f 😀 \u202e e\u0301\r\n"})
def test_what_is_written_is_read_back(value):
    text = dumps(value)
    assert loads_strict(text) == value
    assume(not lost_backslash(text))  # a control beside an escaped backslash: one of the two may have been lost
    parsed = parse(text)
    assert (parsed.value, parsed.end, parsed.steps) == (value, len(text), ())
    assert json.loads(text.encode()) == value


@settings(max_examples=100)
@given(value=st.dictionaries(TEXT, JSON, max_size=4))
def test_python_spelling_is_read_as_its_value(value):
    text = repr(value)
    try:
        parsed = parse(text)
    except JsonFault:  # A double-quoted string is JSON's as long as nothing shows Python, and has then no `\\x00`.
        assert '"' in text
        return
    if '"' not in text:
        assert parsed.value == value
    assert parsed.end == len(text)


@settings(max_examples=300)
@given(text=st.text(alphabet="{}[]\"'\\:,/*ntu0123.eE-+aNTI \n“”\ufeff", max_size=40), closed=st.booleans())
def test_rubbish_is_a_value_or_the_one_fault(text, closed):
    try:
        parsed = parse(text, closed=closed, body_keys=("a",), known_keys=("a", "n"))
    except JsonFault:
        return
    assert 0 <= parsed.end <= len(text)
    json.loads(dumps(parsed.value))


@settings(max_examples=100)
@given(value=st.dictionaries(TEXT, JSON, min_size=1, max_size=3), data=st.data())
def test_a_cut_object_is_never_completed(value, data):
    text = dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(JsonFault):
        parse(text[:cut])


@pytest.mark.parametrize(
    ("text", "value", "steps"),
    [
        ('{"a":"x\ny\tz"}', {"a": "x\ny\tz"}, ("control_chars",)),
        ('{"a":"x\x00y"}', {"a": "x\x00y"}, ("control_chars",)),
        ('\ufeff{"a":\u00a01}', {"a": 1}, ("odd_space",)),
        ('{\\n  "a": 1,\\n "b": 2\\n}', {"a": 1, "b": 2}, ("literal_newline",)),
        ('{"a":"it\\\'s"}', {"a": "it's"}, ("bad_escape",)),
        ('{"a":"\\d+\\$ C:\\path \\u12"}', {"a": "\\d+\\$ C:\\path \\u12"}, ("bad_escape",)),
        ('{"a":1,}', {"a": 1}, ("trailing_comma",)),
        ("[1,2, ]", [1, 2], ("trailing_comma",)),
        ('{"a":"x"\n"b":"y"}', {"a": "x", "b": "y"}, ("missing_comma",)),
        ('{"a":1, // why\n "b":/* "x" */2}', {"a": 1, "b": 2}, ("comment",)),
        ('{"a":"x\\\ty","b":"\\\n"}', {"a": "x\ty", "b": "\\\n"}, ("control_chars", "bad_escape")),
        ("{'a': 'it\\'s', \"b\": True, 'c': None}", {"a": "it's", "b": True, "c": None}, ("python_literal",)),
        ('{"a": """x "y"\nz"""}', {"a": 'x "y"\nz'}, ("python_literal",)),
        ("{path: 1, b-c: 2}", {"path": 1, "b-c": 2}, ("unquoted_keys",)),
        ('{“a”: “b " c”}', {"a": 'b " c'}, ("smart_quotes",)),
        ('{"a":"“b”"}', {"a": "“b”"}, ()),
        ('{"a":1,"a":2}', {"a": 2}, ("duplicate_keys",)),
        ("{a:1,a:2}", {"a": 2}, ("unquoted_keys", "duplicate_keys")),
        ('{{"a":1}}', {"a": 1}, ("doubled_braces",)),
        ('{{ "a": {"b":1} }}', {"a": {"b": 1}}, ("doubled_braces",)),
        ('{{"a": [{{"b":{{}}}}], "c":"}}"}}', {"a": [{"b": {}}], "c": "}}"}, ("doubled_braces",)),
        ('{"a":[NaN,-Infinity,1e999]}', {"a": ["NaN", "-Infinity", "1e999"]}, ("non_finite",)),
        ('{"a":1e999,}', {"a": "1e999"}, ("non_finite", "trailing_comma")),
        ('{"a":.5,"b":+1}', {"a": 0.5, "b": 1}, ("python_literal",)),
        ("{}", {}, ()),
    ],
)
def test_each_mend_is_made_and_named(text, value, steps):
    parsed = parse(text)
    assert parsed.value == value
    assert parsed.steps == steps
    assert parsed.end == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "x",
        "{",
        '{{"a":1}',
        '{{"a":1} }',
        '{ {"a":1}}',
        '{{"a":1},"b":2}',
        '{{{"a":1}}}',
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":"x',
        '{"a":"C:\\"}',
        '{"a" 1}',
        '{"a":007}',
        '{"a":1x}',
        '{"a":undefined}',
        '{"a":bare}',
        "{,}",
        "[,1]",
        "[1 2]",
        '["a" "b"]',
        "[1,,2]",
        '{"a":1]',
        '{"a":1 /* never',
        "/",
        "\\",
        "-",
        "{'a': 'x}",
        '{"a": """x}',
        "“x",
        '{"text": "say "hi" now"}',
        # A comma lost, or one that changed places with the quote.
        '{"a":"x,"\n"b":"y"}',
    ],
)
def test_what_would_need_a_guess_is_a_fault(text):
    with pytest.raises(JsonFault):
        parse(text)


def test_the_object_decides_where_it_ends():
    parsed = parse('  {"a":"</tool_call>"} </tool_call>')
    assert parsed.value == {"a": "</tool_call>"}
    assert parsed.end == 22


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a":1', {"a": 1}), ('{"a":[1,{"b":"x"', {"a": [1, {"b": "x"}]}), ('{"a":{}', {"a": {}})],
)
def test_final_braces_may_be_missing_only_when_the_model_closed_the_call(text, value):
    parsed = parse(text + " \n", closed=True)
    assert parsed.value == value
    assert parsed.steps == ("missing_braces",)
    with pytest.raises(JsonFault):
        parse(text)


@pytest.mark.parametrize("text", ['{"a":"x', '{"a":1,', '{"a":', '{"a"', "{", '{"a":[1,2}'])
def test_nothing_else_is_closed_for_the_model(text):
    with pytest.raises(JsonFault):
        parse(text, closed=True)


@pytest.mark.parametrize(
    ("tail", "steps"),
    [("}}\n", ("surplus_braces",)), (" <!-- done -->", ("comment",)), ("]<!-- x -->}", ("comment", "surplus_braces"))],
)
def test_leftovers_before_the_closer_are_passed_over(tail, steps):
    text = '{"a":1}' + tail
    parsed = parse(text, closed=True)
    assert (parsed.end, parsed.steps) == (len(text), steps)
    assert parse(text).end == 7


def test_other_text_behind_the_value_is_left():
    assert parse('{"a":1} and {"b":2}', closed=True).end == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"path":"p","content":"say "hi" now"}', {"path": "p", "content": 'say "hi" now'}),
        ('{"content":"a "b", c","n":1}', {"content": 'a "b", c', "n": 1}),
        ('{"content":"x\\n"y""}', {"content": 'x\n"y"'}),
    ],
)
def test_inner_quotes_are_read_where_one_way_leads_through(text, value):
    parsed = parse(text, closed=True, body_keys=("content",), known_keys=("path", "content", "n"))
    assert parsed.value == value
    assert parsed.steps == ("inner_quotes",)


def test_inner_quotes_that_can_be_read_twice_are_a_fault():
    text = '{"content":"say "hi" now","path":"p"}'
    with pytest.raises(JsonFault, match="several"):
        parse(text, closed=True, body_keys=("content",), known_keys=("path", "content"))


@pytest.mark.parametrize(
    "text",
    ['{"path":"p","content":"say "hi" now","mode":"w"}', '{"content":"say "hi"","mode":{"a":"b"},"keep":"c"} }'],
)
def test_what_may_be_a_further_member_is_not_taken_into_a_value(text):
    with pytest.raises(JsonFault, match="several"):
        parse(text, closed=True, body_keys=("content",), known_keys=("path", "content"))


def test_members_inside_a_document_are_no_further_members():
    text = '{"path":"p","content":"{"name": "x", "version": 1}"}'
    parsed = parse(text, closed=True, body_keys=("content",), known_keys=("path", "content"))
    assert parsed.value == {"path": "p", "content": '{"name": "x", "version": 1}'}


def test_inner_quotes_need_the_one_body_parameter():
    with pytest.raises(JsonFault):
        parse('{"content":"a "b" c"}', closed=True, body_keys=("content", "diff"), known_keys=("content", "diff"))


def test_the_steps_that_choose_are_marked():
    chosen = {
        step
        for text in ('{"a":1', '{"a":"b"c"}')
        for step in parse(text, closed=True, body_keys=("a",), known_keys=("a",)).steps
    }
    assert chosen == CHOSEN


@pytest.mark.parametrize(
    "text", ['{"a":"\\ud800"}', '"\\udfff x"', '{"a":"\ud800"}', "{'a':'\\ud800'}", '{"\\ud800":1}']
)
def test_a_lone_surrogate_is_a_fault(text):
    with pytest.raises(JsonFault, match="surrogate"):
        parse(text)


def test_a_surrogate_pair_is_a_character():
    assert parse('"\\ud83d\\ude00"').value == "😀"


def test_a_number_too_long_to_read_stays_text():
    digits = "1" * 5000
    assert parse(f'{{"a":{digits}}}').value == {"a": digits}
    assert json.loads(dumps(parse(f"[{digits},]").value)) == [digits]


def test_nesting_is_bounded_before_anything_recurses():
    for opener, closer in (("[", "]"), ('{"a":', "}"), ("{'a':", "}"), ("[[],", "]")):
        with pytest.raises(JsonFault):
            parse(opener * 10_000 + "1" + closer * 10_000)
    assert parse("[" * 64 + "]" * 64).end == 128


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, [{"a": math.inf}], "\ud800", {"\udfff": [10**5000]}])
def test_what_json_cannot_say_is_still_valid_json(value):
    text = dumps(value)
    text.encode()
    json.loads(text, parse_constant=lambda word: pytest.fail(word))


HOSTILE = [
    "{",
    "[",
    '"\\d\\n',
    '["\\d",',
    '{"a":"\\d',
    "/*",
    "//\n",
    "\\n",
    '"',
    "'",
    '"a"\n',
    '{"a":"',
    '" }',
    '","a":',
    " ",
    "“",
    "{a:",
    "-",
    "1",
    "1,",
    '"""',
    "}",
    "<!--",
]


@pytest.mark.cost
@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", ["", "[", '{"a":"'])
def test_time_grows_with_the_text(head, piece):
    def parsing(size: int) -> Callable[[], None]:
        text = head + piece * (size // len(piece))

        def parsed() -> None:
            with suppress(JsonFault):
                parse(text, closed=True, body_keys=("a",), known_keys=("a", "b"))

        return parsed

    assert_linear(parsing, 1 << 14)


@pytest.mark.cost
@pytest.mark.parametrize(("piece", "tail"), [("<!--", ""), ("<!-- -->", "x")])
def test_leftovers_behind_a_value_cost_linear_time(piece, tail):
    def parsing(size: int) -> Callable[[], object]:
        text = "{}" + piece * size + tail
        return lambda: parse(text, closed=True)

    assert_linear(parsing, 1 << 14)


def test_any_number_of_surplus_braces_is_read() -> None:
    assert parse("['a'" + "}" * 5000 + "]").value == ["a"]
