"""Gemma's values in every spelling: quotes and marks around a value are never a part of it."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.reading import AGENT_TOOLS, read, read_every_way

FORMS = {
    "gemma4": ("<|tool_call>call:edit{", "}<tool_call|>"),
    "functiongemma": ("<start_function_call>call:edit{", "}<end_function_call>"),
    "gemma_stripped": ("call:edit{", "}"),
}

KEYS = ("filePath", "oldString", "newString")

QUOTES = ('"', "'", '<|"|>', "<escape>")

VALUES = ("a.py", "src/app.py", "x y", "it's", 'say "hi"', "}", "x = 1", "5", "true", "a:b", "two words, three", "f()")


def spelt(value: str, opening: str, closing: str) -> str:
    return f"{opening}{value}{closing}"


VALUE = st.sampled_from(VALUES).flatmap(
    lambda value: st.tuples(
        st.just(value),
        st.sampled_from([*((quote, quote) for quote in QUOTES), *((quote, "") for quote in QUOTES)])
        | st.sampled_from([("", quote) for quote in ("", *QUOTES)] + [('"', "'"), ('<|"|>', '"'), ('"', '<|"|>')]),
    )
)

KEY_QUOTES = st.sampled_from(("", "", '"', "'", '<|"|>'))

IS = st.sampled_from((":", ": ", "=", " = "))


@given(form=st.sampled_from(sorted(FORMS)), values=st.tuples(VALUE, VALUE, VALUE), quote=KEY_QUOTES, sign=IS)
@settings(max_examples=400, deadline=None, derandomize=True)
@example(
    form="gemma4",
    values=(("a.py", ('"', '"')), ("a.py", ('"', '"')), ("}", ("", ""))),
    quote="",
    sign=":",
)
@example(
    form="gemma4",
    values=(("a.py", ('<|"|>', "")), ("}", ('<|"|>', '<|"|>')), ("x", ("", ""))),
    quote="",
    sign=":",
)
def test_no_value_holds_the_quotes_or_marks_around_it(form, values, quote, sign):
    opening, closing = FORMS[form]
    members = [
        f"{quote}{key}{quote}{sign}{spelt(value, *around)}" for key, (value, around) in zip(KEYS, values, strict=True)
    ]
    found = read(opening + ",".join(members) + closing)
    expected = {key: value for key, (value, _) in zip(KEYS, values, strict=True)}
    for _, arguments in found.calls:
        assert json.loads(arguments) == expected


WHOLE = {
    "an equals sign": ("filePath='a.py'", {"filePath": "a.py"}),
    "single quotes": ("filePath:'a b, c',limit:3", {"filePath": "a b, c", "limit": 3}),
    "double quotes": ('filePath: "a.py", limit="3"', {"filePath": "a.py", "limit": 3}),
    "keys in quotes": ("'filePath':'a.py',\"limit\":4", {"filePath": "a.py", "limit": 4}),
    "an apostrophe in no quotes": ("filePath:it's.py", {"filePath": "it's.py"}),
    "a path of Windows": (r"filePath:'C:\new\Users'", {"filePath": r"C:\new\Users"}),
    "an escaped quote": (r"filePath:'it\'s'", {"filePath": "it's"}),
}

DOUBTFUL = {
    "the last mark is lost": 'filePath:<|"|>a.py',
    "the last mark is lost before others": 'filePath:<|"|>a.py,limit:<|"|>}<|"|>',
    "the first mark is lost": 'filePath:a.py<|"|>',
    "the last quote is lost": 'filePath:"a.py',
    "the first quote is lost": "filePath:a.py'",
    "two kinds of quotes": "filePath:'a.py\"",
    "half a mark": 'filePath:a.py|"|>',
    "marks within quotes": "filePath:'<escape>a.py<escape>'",
    "half escaped": r"filePath:'C:\\Users\dan'",
    "two texts in quotes": "filePath:'a' 'b'",
}

TOKENS = pytest.mark.parametrize(
    ("opening", "closing"), [("<|tool_call>call:read{", "}<tool_call|>"), ("call:read{", "}")]
)


@TOKENS
@pytest.mark.parametrize(("members", "expected"), WHOLE.values(), ids=WHOLE)
def test_a_value_is_read_without_its_quotes(opening, closing, members, expected):
    found = read_every_way(opening + members + closing, tools=AGENT_TOOLS)
    assert [json.loads(arguments) for _, arguments in found.calls] == [expected]


@TOKENS
@pytest.mark.parametrize("members", DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_value_with_half_of_its_quotes_is_refused(opening, closing, members):
    found = read_every_way(opening + members + closing, tools=AGENT_TOOLS)
    assert found.calls == []
    assert any(reasons[0] == "value not closed" or reasons[0].startswith("JSON: ") for reasons in found.notes)


def test_the_marks_of_gemini_are_none_of_a_text():
    found = read(
        'call:default_api:bash{command:<ctrl46>ls {a}, "b"<ctrl46>,timeout:3,description:<ctrl46>List<ctrl46>}'
    )
    assert found.calls == [("bash", '{"command":"ls {a}, \\"b\\"","timeout":3,"description":"List"}')]
    assert read("call:default_api:bash{command:<ctrl46>ls,description:<ctrl46>List<ctrl46>}").calls == []
    assert read("call:default_api:bash{command:ls<ctrl46>}").calls == []


def test_a_namespace_before_a_stripped_name_is_none_of_it():
    assert read("call:default_api:read{filePath:a.py}").calls == [("read", '{"filePath":"a.py"}')]
    assert read("call:Bob at five.").calls == []


def test_of_stripped_calls_with_nothing_between_all_are_made():
    found = read_every_way("call:read{filePath:a.py}call:read{filePath:b.py}call:bash{command:ls {a}}")
    assert [name for name, _ in found.calls] == ["read", "read", "bash"]
    assert (found.calls[1][1], found.text) == ('{"filePath":"b.py"}', "")
    found = read_every_way("call:read{filePath:a.py}call:nobody{a:b}")
    assert (len(found.calls), found.text) == (1, "call:nobody{a:b}")


@pytest.mark.parametrize("form", FORMS)
def test_an_argument_behind_a_bracket_too_many_is_missed_by_nobody(form):
    opening, closing = FORMS[form]
    given = 'filePath:<|"|>a<|"|>,oldString:<|"|>b<|"|>,}newString:<|"|>c<|"|>'
    found = read_every_way(opening + given + closing, prompted=form)
    assert found.calls == []
    assert "value not closed" in str(found.notes)
    whole = read_every_way(opening + given.replace("}", "") + closing, prompted=form)
    assert [json.loads(arguments) for _, arguments in whole.calls] == [
        {"filePath": "a", "oldString": "b", "newString": "c"}
    ]


def test_a_brace_in_the_place_of_a_mark_begins_no_value() -> None:
    found = read('call:read{filePath:}say "hi"\n}\n[1]<|"|><|"|>')
    assert found.calls == []


@pytest.mark.parametrize(
    "call",
    [
        '<|tool_call>call:write{filePath:<|"|>a.md<|"|>,content:<|"|>See:\n{}\nand\n{}\nEnd.<|"|>}<tool_call|>',
        '<|tool_call>call:write{filePath:<|"|>a.md<|"|>,content:<|"|>Marks: <|"|>.\n{}\nEnd.<|"|>}<tool_call|>',
        '<|tool_call>call:write{content:<|"|>{}<|"|>,filePath:<|"|>a.md<|"|>}<tool_call|>',
    ],
)
@pytest.mark.parametrize(
    ("mark", "begin", "end"),
    [
        ('<|"|>', "<|tool_call>", "<tool_call|>"),
        ("<escape>", "<start_function_call>", "<end_function_call>"),
    ],
)
def test_a_page_with_examples_of_calls_is_one_value_or_none(call: str, mark: str, begin: str, end: str) -> None:
    """The marks of an example end the text for whoever reads: what stands behind them is as likely a part of it."""
    example = f"{begin}call:bash{{command:{mark}touch x{mark}}}{end}"
    for old, new in (("{}", example), ('<|"|>', mark), ("<|tool_call>", begin), ("<tool_call|>", end)):
        call = call.replace(old, new)
    found = read_every_way(call)
    assert found.calls == []
    assert found.text == call
