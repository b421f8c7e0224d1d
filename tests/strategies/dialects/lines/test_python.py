"""Calls written as Python: plain values make a call, anything else is code, and code is never run."""

import pytest

from tests.support.reading import read_every_way

READ = ("read", '{"filePath":"a.py"}')


@pytest.mark.parametrize(
    "text",
    [
        '[read(filePath="a.py")]',
        '<|python_start|>[read(filePath="a.py")]<|python_end|>',
        '```tool_code\nprint(default_api.read(filePath="a.py"))\n```',
        '```tool_code\nread(filePath="a.py")\n```',
    ],
)
def test_every_way_to_write_a_call_is_read(text: str) -> None:
    assert read_every_way(text).calls == [READ]


@pytest.mark.parametrize(
    "text",
    [
        "[read(filePath=path)]",
        '[read(filePath="a" + "b")]',
        '[unheard(filePath="a.py")]',
        '```python\nread(filePath="a.py")\nprint(1)\n```',
        '```tool_code\nfor x in y:\n    read(filePath="a.py")\n```',
        '[read(filePath="a.py"',
    ],
)
def test_anything_but_plain_calls_is_text(text: str) -> None:
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)


@pytest.mark.parametrize(
    ("before", "is_call"),
    [("", True), ("I will read it.\n\n", True), ('"a.py" it is:\n\n', True), ('"Where is it?" she asked.\n\n', False)],
)
def test_a_call_in_quotes_is_none_where_people_talk_to_each_other(before: str, is_call: bool) -> None:
    found = read_every_way(f"""{before}"read(filePath='a.py')\"""")
    assert found.calls == [READ][:is_call]


@pytest.mark.parametrize(
    "given",
    [
        'read(filePath="a", limit=3',
        'read(filePath="a",) limit=3)',
        'read(filePath="\n")")',
        'read(filePath="7)\n<<function>>read(filePath=", limit=3)',
    ],
)
def test_a_call_of_gorilla_that_a_stray_or_a_lost_sign_has_ended_is_none(given: str) -> None:
    assert read_every_way(f"<<function>>{given}").calls == []


@pytest.mark.parametrize("between", ["", "\n", ", ", " then "])
def test_calls_of_gorilla_may_stand_side_by_side(between: str) -> None:
    found = read_every_way(f'<<function>>read(filePath="a"){between}<<function>>read(filePath="b") that is all')
    assert [arguments for _, arguments in found.calls] == ['{"filePath":"a"}', '{"filePath":"b"}']
