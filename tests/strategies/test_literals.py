"""Where markup is only being talked about."""

import pytest

from strategies.dialect import Opening
from strategies.literals import closes_fence, is_announced_example, is_quoted, may_open_fence, opens_fence
from tests.support.reading import read_every_way

CALL = "<read>\n<filePath>a</filePath>\n</read>"


@pytest.mark.parametrize("line", ["", "   ", "\t", "- ", "  1. ", "* - ", "10) ", "     "])
def test_a_fence_may_open_behind_indentation_and_list_markers(line: str) -> None:
    assert may_open_fence(line)


@pytest.mark.parametrize("line", ["x", "x ", "> ", "-", "1.", "a. "])
def test_a_fence_opens_behind_nothing_else(line: str) -> None:
    assert not may_open_fence(line)


def test_the_info_string_of_a_fence_is_its_first_word() -> None:
    assert opens_fence(" XML  title", "`") == "xml"
    assert opens_fence("", "`") == ""
    assert opens_fence("a`b", "`") is None
    assert opens_fence("a`b", "~") == "a`b"


@pytest.mark.parametrize("line", ["```", "````", "   ``` \t", "```\r"])
def test_a_fence_is_closed_by_as_many_marks(line: str) -> None:
    assert closes_fence(line, ("`", 3, 0))


@pytest.mark.parametrize("line", ["``", "~~~", "``` x", "    ```", "x ```", ""])
def test_a_fence_is_closed_by_nothing_less(line: str) -> None:
    assert not closes_fence(line, ("`", 3, 0))


def test_a_deeper_fence_is_closed_as_deep() -> None:
    assert closes_fence("     ```", ("`", 3, 2))
    assert not closes_fence("      ```", ("`", 3, 2))


def quoted(before: str, level: str = "C") -> bool:
    return is_quoted(Opening(marker="<read", before=before), level)


@pytest.mark.parametrize(
    "before", ["", "\n", "   ", "Done.\n", "Look: ", "Now! ", "(see above) ", "</write> ", "`x`\n"]
)
def test_a_call_may_stand_at_a_line_start_or_behind_a_sentence(before: str) -> None:
    assert not quoted(before)


@pytest.mark.parametrize("before", ["use ", "the", '"', "“", "> ", "x > y\n> ", "- ", "1. ", "* ", "`", "a, "])
def test_a_call_inside_a_sentence_a_list_or_a_quotation_is_talked_about(before: str) -> None:
    assert quoted(before)


def test_strong_markup_counts_inside_a_sentence_but_not_in_quotes() -> None:
    assert not quoted("use ", "B")
    assert quoted('say "', "B")
    assert quoted("> ", "B")


@pytest.mark.parametrize(
    "before", ["For example:\n", "It looks like this:\n", "e.g. ", "Zum Beispiel:\n", "例如：\n", "The format is\n"]
)
def test_a_lead_in_announces_an_example(before: str) -> None:
    assert is_announced_example(before)


@pytest.mark.parametrize(
    "before", ["", "I will read it.\n", "An example came before. Now I read:\n", "For example, no.\n\nNow:\n"]
)
def test_only_the_last_sentence_announces(before: str) -> None:
    assert not is_announced_example(before)


@pytest.mark.parametrize(
    "text",
    [
        f"~~~~\n~~~\n{CALL}\n~~~\n~~~~\nSee.",
        f"````\n```\n{CALL}\n```\nstill\n````\n",
        f"```\n~~~\n{CALL}\n~~~\n",
        f"```text\n{CALL}\n",
        f"   ```py\n   {CALL}\n   ```\nSo.",
        f"1. First\n\n   ```\n   x\n   ```\n2. Then ``{CALL}``",
        f"a ``code with ` and\n{CALL}`` end",
        f">{CALL}",
        f"> quoted\n> {CALL}",
    ],
)
def test_nothing_literal_is_a_call(text: str) -> None:
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{CALL}\n```",
        f"```py\nx\n```\n{CALL}",
        f"~~~\nx ```\n~~~\n{CALL}",
        f"a `b` c.\n{CALL}",
        f"a ` b.\n\n{CALL}",
        f"a ```b``` c.\n{CALL}",
        f"````\nx\n```\n````\n{CALL}",
        f"- item\n\n{CALL}",
        f"> quoted\n\n{CALL}",
    ],
)
def test_what_is_behind_it_is_one(text: str) -> None:
    assert [name for name, _ in read_every_way(text).calls] == ["read"]


def test_inline_code_ends_near_or_is_none() -> None:
    near, far = (f"a ` b.\n{CALL}\n" + "x" * size + "`" for size in (3_000, 6_000))
    assert read_every_way(near, splits=20).calls == []
    assert [name for name, _ in read_every_way(far, splits=20).calls] == ["read"]
