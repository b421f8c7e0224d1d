"""Behind the end of a document: what shows that it was one, and what asks for another reading."""

import json

import pytest

from tests.support.reading import read_every_way

OPEN = "<write>\n<filePath>a</filePath>\n<content>\n"
END = "\n</content>\n</write>"
READ = "<read>\n<filePath>b</filePath>\n</read>"


def contents(text: str) -> list[str]:
    return [json.loads(arguments).get("content", "") for _, arguments in read_every_way(text).calls]


@pytest.mark.parametrize("behind", ["", "\n", "\nDone.", "\nDone <b>well</b>.", f"\n{READ}", f"\n{READ}\nDone."])
def test_the_first_end_is_taken_where_nothing_behind_it_says_otherwise(behind: str) -> None:
    assert contents(OPEN + "x" + END + behind)[0] == "x"


@pytest.mark.parametrize("between", ["\nmore\n", " and ", "\n# <i>more</i>\n"])
def test_no_call_is_made_where_words_stand_between_two_ends(between: str) -> None:
    assert contents(OPEN + "x" + END + between + END) == []


def test_the_end_of_another_call_behind_it_is_that_calls() -> None:
    other = OPEN.replace(">a<", ">c<")
    assert contents(f"{OPEN}x{END}\n{other}y{END}") == ["x", "y"]


def test_a_call_that_lacks_what_it_needs_goes_on_at_the_parameter_behind_another_closer() -> None:
    text = "<write>\n<content>\nx\n</content>\n</write>\ny\n</content>\n<filePath>a</filePath>\n</write>"
    assert contents(text) == ["x\n</content>\n</write>\ny"]
