"""Calls written as Python: what is data, what is code, and that hostile text costs no more than its length."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.text.cursor import Cursor, Reject
from strategies.text.python_text import PythonCall, PythonFault, bracketed, parse_calls, read_calls

READ = {
    "a list of calls": ('[f(a="x", n=1), g()]', [("f", {"a": "x", "n": 1}), ("g", {})]),
    "calls on lines": ("f(a=1)\n\ng(b=2)\n", [("f", {"a": 1}), ("g", {"b": 2})]),
    "calls behind semicolons and commas": ("f(a=1); g(); h(),k()", [("f", {"a": 1}), ("g", {}), ("h", {}), ("k", {})]),
    "a printed call": ('print(default_api.f(a="x"))', [("default_api.f", {"a": "x"})]),
    "an assigned call": ("result = f(a=1)", [("f", {"a": 1})]),
    "an awaited call": ("r = await f(a=1)", [("f", {"a": 1})]),
    "nested data": (
        'f(a=[1, (2, 3), {"k": None, 2: (4,)}], b=(5))',
        [("f", {"a": [1, [2, 3], {"k": None, "2": [4]}], "b": 5})],
    ),
    "numbers": (
        "f(a=-1, b=+2, c=1.5e3, d=.5, e=0x1F, g=1_000, h=0b11, i=5.)",
        [("f", {"a": -1, "b": 2, "c": 1500.0, "d": 0.5, "e": 31, "g": 1000, "h": 3, "i": 5.0})],
    ),
    "words of both languages": (
        "f(a=True, b=false, c=None, d=null, e=true, g=False)",
        [("f", {"a": True, "b": False, "c": None, "d": None, "e": True, "g": False})],
    ),
    "escapes": (r"f(a='it\'s', b='\x41\u00e9\101\0', c='\d\$')", [("f", {"a": "it's", "b": "AéA\0", "c": r"\d\$"})]),
    "a surrogate pair": (r'f(a="\ud83d\ude00")', [("f", {"a": "😀"})]),
    "raw strings": (r'f(a=r"\n", b=R"\"")', [("f", {"a": r"\n", "b": r"\""})]),
    "long strings": ('f(a="""x\n"q" ""\n""", b=\'\'\'it\'s\'\'\')', [("f", {"a": 'x\n"q" ""\n', "b": "it's"})]),
    "strings side by side": ('f(a="x" "y"\n "z")', [("f", {"a": "xyz"})]),
    "a joined line": ('f(a="x\\\ny")', [("f", {"a": "xy"})]),
    "comments": ("f(\n  a=1,  # it's (one\n  b=2,\n)  # done\n", [("f", {"a": 1, "b": 2})]),
    "reserved words as keywords": ('f(from="x", class="y")', [("f", {"from": "x", "class": "y"})]),
    "a dict alone": ('f({"a": 1})', [("f", {"a": 1})]),
    "names with dots and dashes": ("my-tool.run(a=1)", [("my-tool.run", {"a": 1})]),
    "a quoted call": ("\"f(a='x')\"", [("f", {"a": "x"})]),
    "a list that lacks its end": ("[f(a=1), g()", [("f", {"a": 1}), ("g", {})]),
    "a set": ('f(a={"x", "y"}, b={1}, c={})', [("f", {"a": ["x", "y"], "b": [1], "c": {}})]),
    "quotes inside a value that only one end fits": (
        "[f(a='sed -n '3,5p' /x', b=1), g()]",
        [("f", {"a": "sed -n '3,5p' /x", "b": 1}), ("g", {})],
    ),
    "a raw line break in a string": ('f(a="x\ny")', [("f", {"a": "x\ny"})]),
}
REFUSED = {
    "nothing": "",
    "a link": "[docs](https://x.example/y)",
    "a list of names": "[x]",
    "a list of numbers": "[1, 2]",
    "a name as a value": "f(a=b)",
    "an operator": 'f(a="x" + "y")',
    "strings that touch": 'f(a="x""y")',
    "an f-string": 'f(a=f"{x}")',
    "bytes": 'f(a=b"x")',
    "a call as a value": "f(a=g())",
    "a method of a result": "f(a=1).read()",
    "quotes inside a value that several ends fit": "f(a='it's', b='x')",
    "a method of a string": "f(a='-'.join())",
    "an index": "f(a=1)[0]",
    "a comprehension": "f(a=[x for x in y])",
    "a star": "f(*a, **b)",
    "a comparison": "f(a == 1)",
    "prose behind it": "f(a=1) and then",
    "a keyword given twice": "f(a=1, a=2)",
    "a keyword before a position": "f(a=1, 2)",
    "a key that is no text": "f(a={None: 1})",
    "no comma": "f(a=1 b=2)",
    "no colon": "f(a={'k' 1})",
    "a member given twice": "f(a={'k': 1, 'k': 2})",
    "words between two quoted calls": "'f(a=1)' or 'g()'",
    "a number without digits": "f(a=0x_)",
    "a binary number with other digits": "f(a=0b12)",
    "an open call": "f(a=1",
    "an open string": "f(a='x)",
    "half a surrogate": r'f(a="\ud83d")',
    "a number out of range": "f(a=1e999)",
    "a number that goes on": "f(a=12px)",
    "a position": "f(1)",
    "two printed things": "print(f(a=1), 2)",
    "a statement of another kind": "for x in y: f(a=1)",
    "a definition": "def f(a=1): pass",
    "too deep a list": "f(a=" + "[" * 65 + "]" * 65 + ")",
    "too deep a print": "print(" * 5000 + "f()" + ")" * 5000,
}


@pytest.mark.parametrize("name", READ)
def test_calls_are_read(name):
    text, expected = READ[name]
    assert parse_calls(text) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused(name):
    with pytest.raises(PythonFault):
        parse_calls(REFUSED[name])


def test_values_keep_their_type():
    assert parse_calls("f(a=True)")[0][1]["a"] is True
    assert type(parse_calls("f(a=1)")[0][1]["a"]) is int
    assert type(parse_calls("f(a=1.0)")[0][1]["a"]) is float


def test_mends_belong_to_their_call():
    assert [call.mends for call in read_calls("f(a=007)\ng(a='x\ny')\nh()")] == [
        ("leading_zero",),
        ("control_chars",),
        (),
    ]
    assert read_calls("[f()")[0].mends == ("missing_bracket",)


def test_positions_are_kept_for_the_caller():
    assert read_calls("f('x', 2)") == [PythonCall(name="f", positional=("x", 2))]


def test_constructors_are_objects_only_where_they_are_asked_for():
    text = "f(a=default_api.FArgs(x=1))"
    assert read_calls(text, constructors=True)[0].arguments == {"a": {"x": 1}}
    with pytest.raises(PythonFault):
        read_calls(text)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), PLAIN, max_size=4))
@settings(max_examples=200, deadline=None)
def test_what_python_writes_is_read_back(arguments):
    text = "f(" + ", ".join(f"{key}={value!r}" for key, value in arguments.items()) + ")"
    assert parse_calls(text) == [("f", arguments)]


@given(st.text(alphabet="f(a='\"\\[]{},: #\n1)=printN."))
@settings(max_examples=300, deadline=None)
def test_nothing_but_its_own_fault_is_raised(text):
    with suppress(PythonFault):
        parse_calls(text)


def scanned(parts: list[str]) -> tuple[object, str, str]:
    cursor = Cursor()
    pieces: list[str] = []
    steps = bracketed(cursor, pieces.append)
    for number, part in enumerate(parts):
        cursor.push(part)
        cursor.eof = number == len(parts) - 1
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, "".join(pieces), cursor.text[cursor.pos :] + "".join(parts[number + 1 :])
    raise AssertionError("the answer has ended")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("f(a=')', b=\"]\") tail", " tail"),
        ("[f(a='''it's ) \" ''', b='\\')'), g()] tail", " tail"),
        ("f(a='', b=\"\") tail", " tail"),
        ("f( # it's )\n a={'k': [1]}) tail", " tail"),
    ],
)
def test_the_matching_bracket_is_found_whatever_the_cuts(text, rest):
    whole = scanned([text])
    assert whole == (True, text[: -len(rest)], rest)
    assert scanned(list(text)) == whole


def test_brackets_that_do_not_match_are_refused():
    for text in ("f(]", "f({)", ")", "f(" + "[" * 70):
        with pytest.raises(Reject):
            scanned([text])


def test_an_open_bracket_is_not_the_end():
    assert scanned(["f(a='x)"])[0] is False
