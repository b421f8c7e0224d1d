"""Quotes inside a text that nobody escaped: when they may be the edges of several texts."""

import pytest

from strategies.text.loose_quotes import may_be_torn
from strategies.text.turns import whole
from tests.support.reading import read_every_way


@pytest.mark.parametrize(
    "body",
    [
        'x" + "y',
        r'x = 1\n" + "y = 2\n',
        'ls " + dir + "',
        'ls " + str(a[0]) + "/b',
        'a" "b',
        'a", "b',
        'a","b',
        'a" . "b',
        'a".."b',
        'a" || "b',
        'a" | "b',
        'a" % "b',
        'a" & "b" & "c',
        'a"+"b',
        'cd(".") \n" + "x("',
    ],
)
def test_texts_that_code_puts_together_are_torn(body: str) -> None:
    assert whole(may_be_torn(body, '"'))
    text = f'<tool_call>{{"name": "bash", "arguments": {{"command": "{body}"}}}}</tool_call>'
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)


@pytest.mark.parametrize(
    "body",
    [
        'cd ".."',
        'echo "a" + "b"',
        'print("a", "b")',
        'x.split(",")',
        'awk -F"," x',
        'cut -d" " -f1',
        'b" ".join(x)',
        'say "hi" twice',
        'select "a"."b"',
        'cat "a" && cat "b" || true',
        'html = "<a href=" + url + ">"',
        'sep=" . "; x',
        'sort "a" | uniq "-c" % x',
        'split(" | ")',
    ],
)
def test_texts_in_quotes_are_whole(body: str) -> None:
    assert not whole(may_be_torn(f"{body} ", '"'))


@pytest.mark.parametrize("quote", ["'", '"'])
def test_strings_of_either_kind_are_parted(quote: str) -> None:
    other = "'" if quote == '"' else '"'
    assert whole(may_be_torn(f"a{quote} + {quote}b", quote))
    assert not whole(may_be_torn(f"a{quote} + {quote}b", other))
