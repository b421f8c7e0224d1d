"""DSML: parameters whose tags are damaged, beside what the golden cases show."""

import json

import pytest

from tests.support.reading import read_every_way

OPEN, CLOSE = "<｜DSML｜", "</｜DSML｜"


def calls_of(*parameters: str, name: str = "bash") -> list[tuple[str, dict[str, object]]]:
    """What a section with one call of these parameters comes to."""
    body = "\n".join(parameters)
    call = f'{OPEN}invoke name="{name}">\n{body}\n{CLOSE}invoke>'
    found = read_every_way(f"{OPEN}tool_calls>\n{call}\n{CLOSE}tool_calls>")
    return [(called, json.loads(arguments)) for called, arguments in found.calls]


@pytest.mark.parametrize("word", ["parameter", "invoke"])
def test_a_value_in_the_tag_is_taken_as_it_stands(word: str) -> None:
    assert calls_of(f'{OPEN}{word} name="command" string="make && ls" />') == [("bash", {"command": "make && ls"})]


@pytest.mark.parametrize("value", ["a &amp; b", "a > b", 'echo \\"a\\"', "true"])
def test_a_value_in_the_tag_that_may_be_escaped_is_none(value: str) -> None:
    assert calls_of(f'{OPEN}invoke name="command" string="{value}" />') == []


def test_a_value_behind_a_tag_that_holds_one_is_none() -> None:
    assert calls_of(f'{OPEN}parameter name="command" string="ls">{CLOSE}parameter>') == []


def test_an_opener_without_its_token_counts_where_the_call_begins_so() -> None:
    bare = f'<parameter name="filePath">a.py{CLOSE}parameter>'
    assert calls_of(bare, name="read") == [("read", {"filePath": "a.py"})]
    assert calls_of(f'{OPEN}parameter name="limit" string="false">3{CLOSE}parameter>', bare, name="read") == []


@pytest.mark.parametrize("closer", ["paramter", "parametre", "prameter"])
def test_a_misspelt_closer_ends_a_value_in_front_of_what_may_follow(closer: str) -> None:
    assert calls_of(f'{OPEN}parameter name="command" string="true">ls{CLOSE}{closer}>') == [("bash", {"command": "ls"})]


def test_a_misspelt_closer_in_a_value_is_text() -> None:
    said = f"ls # {CLOSE}paramter> is none"
    assert calls_of(f'{OPEN}parameter name="command" string="true">{said}{CLOSE}parameter>') == [
        ("bash", {"command": said})
    ]
