"""Closers by what they are and what a value has opened: whether the last of a value is its own."""

import pytest

from strategies.grammar.closers import Elements, Run, end_of_run, ends_with_closer, ends_with_token


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("a", False),
        ("a</b>", False),
        ("a</parameter>", True),
        ("a</parameter> \n", True),
        ("a</parameter> b", False),
        ("<parameter>a</parameter>", False),
        ("<parameter>a</parameter></parameter>", True),
        ("a</content>", True),
        ("<content>a</content>", False),
        ("a<\uff5ctool\u2581call\u2581end\uff5c>", True),
    ],
)
def test_a_value_ends_with_a_closer_that_it_has_not_opened(text: str, ends: bool) -> None:
    assert ends_with_closer(text, "content") is ends


def test_a_closer_between_tokens_is_known_in_any_spelling() -> None:
    assert ends_with_token("a<|close|>argument<|sep|>")
    assert ends_with_token("a<\uff5ctool_calls_end\uff5c>\n")
    assert not ends_with_token("a</parameter>")


def test_an_element_is_open_until_it_is_closed() -> None:
    elements = Elements("content")
    elements.see("<content>", is_opener=False)
    elements.see("<br/>", is_opener=False)
    assert (elements.open("</content>"), elements.open("</br>")) == (1, 0)
    elements.see("</content>", is_opener=False)
    assert elements.open("</content>") == 0
    assert elements.holds_opener


def run(*kinds: str, follows: str = "end") -> Run:
    return Run(kinds=kinds, ends=tuple(range(1, len(kinds) + 1)), follows=follows)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (run("close", "call_close"), None),
        (run("close", "close", "call_close"), ("repeated", 2)),
        (run("foreign", "close", "call_close"), ("foreign", 2)),
        (run("call_close", "close"), ("swapped", 2)),
        (run("close", "close", follows="text"), ("content", 0)),
        (run("foreign", follows="text"), ("content", 0)),
    ],
)
def test_closers_that_stand_together_end_a_value_at_the_last_that_is_its_own(
    found: Run, end: tuple[str, int] | None
) -> None:
    assert end_of_run(found, Elements("content"), "</content>") == end


def test_where_the_value_holds_an_opener_there_is_no_telling() -> None:
    elements = Elements("content")
    elements.see("<parameter>", is_opener=True)
    assert end_of_run(run("close", "close", "call_close"), elements, "</content>") == ("doubt", 0)
