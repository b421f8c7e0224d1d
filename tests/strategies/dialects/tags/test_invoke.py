"""`invoke` with named parameters: in its section, without it, and with the prefixes that models give it."""

import json

import pytest

from tests.support.reading import read, read_every_way

CALL = '<invoke name="bash">\n<parameter name="command">{}</parameter>\n</invoke>'


@pytest.mark.parametrize("around", ["{}", "<function_calls>\n{}\n</function_calls>", "I look.\n\n{}"])
def test_the_section_may_be_missing(around: str) -> None:
    assert read_every_way(around.format(CALL.format("ls"))).calls == [("bash", '{"command":"ls"}')]


@pytest.mark.parametrize("value", ["a < b", "echo '</invoke>' done", "a\nb", "<b>x</b>"])
def test_a_value_is_kept_whole(value: str) -> None:
    text = f"<function_calls>\n{CALL.format(value)}\n</function_calls>"
    found = read_every_way(text)
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"command": value}]


def test_several_calls_of_a_section_keep_their_order() -> None:
    text = f"<function_calls>\n{CALL.format('a')}\n{CALL.format('b')}\n</function_calls>"
    assert [json.loads(arguments)["command"] for _, arguments in read_every_way(text).calls] == ["a", "b"]


@pytest.mark.parametrize("quoted", ["`{}`", "```\n{}\n```"])
def test_a_call_that_is_only_shown_is_none(quoted: str) -> None:
    text = f"A call looks so:\n{quoted.format(CALL.format('ls'))}\nThat is all."
    assert read_every_way(text).calls == []


def test_a_call_that_was_cut_off_is_none() -> None:
    text = "<function_calls>\n" + CALL.format("rm -rf build")[:-25]
    found = read(text, reason="length")
    assert (found.calls, found.text) == ([], text)


@pytest.mark.parametrize("prefix", ["", "antml:", "ns:", "xai:", "mm:"])
def test_nothing_of_a_block_is_left(prefix: str) -> None:
    call = CALL.format("ls").replace("<", f"<{prefix}").replace(f"<{prefix}/", f"</{prefix}")
    found = read_every_way(f"I look.\n<{prefix}function_calls>\n{call}\n</{prefix}function_calls>")
    assert [name for name, _ in found.calls] == ["bash"]
    assert found.content == "I look."
