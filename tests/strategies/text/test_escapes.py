"""Backslashes in strings: the escapes of the language or themselves, never some and some, whatever the dialect."""

import ast
import json
import re
import time
import warnings

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from strategies.dialects.rows import TABLE
from strategies.text.escapes import Backslashes, HalfEscaped
from strategies.text.python_text import PythonFault, read_calls
from strategies.text.tolerant_json import JsonFault, parse
from strategies.text.turns import whole
from tests.support.reading import read

NEVER_ESCAPED = [
    r"C:\Users\bob",
    r"C:\new\Users",
    r"C:\Program Files\new\Users\table.txt",
    r"\\server\share\new",
    r"src\new\Users.cs",
    r"copy C:\temp\x.txt D:\new\data",
    r"^\bclass\s+\w+",
    r"\frac{a}{b} \pi",
    r"(\w+)\1",
    "line one\n" + r"re.compile('\d+\n')",
]
TWO_WAYS = [
    r"C:\\Users\dan",
    r"\d+\nls",
    r"grep \"\d\" f",
    r"x\\d+\.y",
    r"\alpha \times \pi",
    r"echo 'it'\''s'",
    "\\u0041\\d",
    r"C:\\Users\bob\\new",
    r"C:\\Users\\bob\new",
    r"C:\new\\bob",
    r"copy C:\\a\new\\b here",
    r"C:\Users\bob\new\nNew York",
    r"C:\Users\bob\new\na",
    r"\\w+\b",
    r"src/app.py\n\d+\.\w*",
    'print(\\"x\\")\nre.compile(\\d)',
]
PIECES = [
    *(
        r"C:\Users",
        r"C:\new",
        r"\\host\share",
        r"\temp",
        r"\nls",
        r"src\new\data",
        r"\d+",
        r"\s",
        r"\bword",
        r"\n",
        r"\t",
    ),
    *(
        r"\u0041",
        r"\u12",
        r"\x41",
        r"\xg",
        r"\'",
        "'",
        r"\\",
        r"\/",
        r"\$",
        r"\pi",
        r"\frac",
        r"\nu",
        r"\1",
        r"\0",
        r"\N",
    ),
    *("\\\n", "\n", " ", "a", "Files", ".py", "x = 1", "{", ":", "-", "(", "é"),
]
BODIES = (
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join).filter(lambda body: body.strip() == body)
)
MARK = "src/app.py"
CARRIERS = [row for row in TABLE if f'"{MARK}"' in row.example]


def meanings(body: str) -> set[str]:
    """The body as it stands, and as JSON and Python read all of it, where they have every escape in it."""
    found = {body}
    found |= decoded(lambda: json.loads(f'"{re.sub(_PAIR, _bare_quote, body)}"', strict=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found |= decoded(lambda: ast.literal_eval(f'"""{body}"""'))
    return found


_PAIR = re.compile(r"\\.", re.DOTALL)


def _bare_quote(pair: re.Match[str]) -> str:
    return "'" if pair[0] == r"\'" else pair[0]


def ast_reads(body: str) -> str:
    """What Python makes of the body, which leaves the escapes that it does not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read: str = ast.literal_eval(f'"""{body}"""')
        except SyntaxError:
            return ""
    return read


def decoded(decode) -> set[str]:
    try:
        return {decode()}
    except (ValueError, SyntaxError):
        return set()


@pytest.mark.parametrize("body", NEVER_ESCAPED)
def test_a_string_with_an_escape_that_is_none_was_never_escaped(body):
    assert parse(f'{{"a": "{body}"}}').value == {"a": body}
    assert read_calls(f'f(a="{body}")')[0].arguments == {"a": body}
    assert "bad_escape" in parse(f'{{"a": "{body}"}}').steps
    mends = read_calls(f'f(a="{body}")')[0].mends
    assert ("bad_escape" in mends) == (ast_reads(body) != body)


@pytest.mark.parametrize("body", TWO_WAYS)
def test_a_string_that_is_half_escaped_is_none(body):
    with pytest.raises(JsonFault, match="several ways"):
        parse(f'{{"a": "{body}"}}')
    with pytest.raises(PythonFault, match="several ways"):
        read_calls(f'f(a="{body}")')


@pytest.mark.parametrize("key", ["path", "new"])
def test_a_path_that_may_not_be_escaped_beside_one_that_is_not_is_none(key):
    with pytest.raises(JsonFault, match="several ways"):
        parse(r'{"a": "C:\new", "b": "C:\Users"}')
    with pytest.raises(PythonFault, match="several ways"):
        read_calls(rf'f({key}="C:\new", b="C:\Users")')


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        (r"cd C:\\Users\\dan\nls", "cd C:\\Users\\dan\nls"),
        (r"C:\\Users\\dan\n", "C:\\Users\\dan\n"),
        (r"C:\\new\nC:\\old", "C:\\new\nC:\\old"),
        (r"a\tb", "a\tb"),
        (r"\\beta\\frac", r"\beta\frac"),
    ],
)
def test_a_line_break_behind_a_path_is_one(body, meant):
    assert parse(f'{{"a": "{body}"}}').value == {"a": meant}
    assert read_calls(f'f(a="{body}")')[0].arguments == {"a": meant}


@pytest.mark.parametrize("value", ["“so”", "'a', 'b'", ")", ","])
def test_quotes_that_a_name_stands_between_are_none_of_a_text(value):
    with pytest.raises(PythonFault, match="quotes"):
        read_calls(f'read_file(""path="{value}")')


def test_an_escape_in_a_word_beside_quotes_that_are_not_escaped_is_asked_about():
    keys = ("content",)
    with pytest.raises(JsonFault, match="quotes"):
        parse(r'{"content": "say "hi" and a\tb"}', closed=True, body_keys=keys, known_keys=keys)
    assert parse(r'{"content": "say "hi":\n\treturn"}', closed=True, body_keys=keys, known_keys=keys).value == {
        "content": 'say "hi":\n\treturn'
    }


def test_escaped_and_unescaped_quotes_of_a_kind_are_asked_about():
    with pytest.raises(JsonFault, match="quotes"):
        parse('{"content":"x "y" \\"z\\""}', closed=True, body_keys=("content",), known_keys=("content",))
    with pytest.raises(PythonFault, match="quotes"):
        read_calls(r"[f(a='sed \'x\' '3,5p' /x', b=1)]")
    with pytest.raises(PythonFault, match="several"):
        read_calls('f(a="""say \\"x\\" and "y" """)')


def test_a_python_literal_has_the_escapes_of_python():
    assert parse(r"""{'a': "it's \x41"}""").value == {"a": "it's A"}
    assert parse(r"""{'a': "a\/b"}""").value == {"a": "a/b"}


def test_the_strings_of_a_text_are_looked_at_in_linear_work():
    backslashes = Backslashes()
    started = time.process_time()
    for body in (
        "\\n" * 50_000 + "\\d",
        "a" * 100_000 + r"\n\d",
        r"C:\a" * 30_000,
        "\\" * 99_999 + "d",
        "a b\\n" * 30_000,
    ):
        try:
            whole(backslashes.json_text(body))
        except HalfEscaped:
            continue
    assert time.process_time() - started < 2


@given(body=BODIES)
@settings(max_examples=60, deadline=None, derandomize=True)
@example(body=r"C:\new\Users")
@example(body=r"\d\n")
@example(body=r"it\'s")
def test_no_dialect_decodes_half_of_a_string(body):
    right = meanings(body)
    assert len(CARRIERS) > 20
    for row in CARRIERS:
        found = read(row.example.replace(MARK, body), prompted=row.id)
        for _, arguments in found.calls:
            assert json.loads(arguments).get("filePath") in right, (row.id, found.calls)


@given(body=BODIES, quote=st.sampled_from(['"', "'", '"""', "'''"]))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_no_python_string_is_decoded_by_half(body, quote):
    assume(quote[0] not in _PAIR.sub("", body))  # it would end the string, and another one might begin
    right = meanings(body)
    for text in (
        f"[read(filePath={quote}{body}{quote})]",
        f"{{'name': 'read', 'arguments': {{'filePath': {quote}{body}{quote}}}}}",
    ):
        for row in ("pythonic", "tool_code", "hermes", "json_bare", "react"):
            for _, arguments in read(text, prompted=row).calls:
                assert json.loads(arguments).get("filePath") in right


QUOTED_PIECES = ('\\"', '"', " ", "x", "say", ",", ".", r"\n", "(", ")", "=", "'", ":", r"\\", "hi", r"\d", "\n")
WRITES = {
    row: row.example.replace("read", "write")
    .replace(f'{{"filePath": "{MARK}"}}', '{"filePath": "a", "content": "\0"}')
    .replace(f'(filePath="{MARK}")', '(filePath="a", content="\0")')
    for row in CARRIERS
}


@given(body=st.lists(st.sampled_from(QUOTED_PIECES), min_size=1, max_size=9).map("".join))
@settings(max_examples=40, deadline=None, derandomize=True)
@example(body='x"" ')
@example(body=r'say \"x\" and "y".')
@example(body='print("x")')
def test_no_dialect_takes_a_string_whose_quotes_are_escaped_by_half(body):
    assume(not body.endswith("\\"))
    pairs = _PAIR.findall(body)
    is_half = '"' in _PAIR.sub("", body) and '\\"' in pairs
    escaped = re.sub(r'\\.|"', lambda match: '\\"' if match[0] == '"' else match[0], body, flags=re.DOTALL)
    right = {body} | decoded(lambda: json.loads(f'"{escaped}"', strict=False))
    for row, text in WRITES.items():
        for _, arguments in read(text.replace("\0", body), prompted=row.id).calls:
            assert not is_half, row.id
            assert json.loads(arguments)["content"] in right, row.id
