"""DeepSeek: calls between its own tokens, in the two forms of its versions."""

import json

import pytest

from tests.support.reading import read, read_every_way

BEGIN, END = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"
CALL, CALL_END = "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"
SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"
FORMS = (
    CALL + "function" + SEPARATOR + "bash\n```json\n%s\n```" + CALL_END,
    CALL + "bash" + SEPARATOR + "%s" + CALL_END,
)


def commands(text: str) -> list[str]:
    return [json.loads(arguments)["command"] for _, arguments in read_every_way(text).calls]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", ["ls", f"echo '{CALL_END}'", "echo '```'"])
def test_a_string_may_hold_what_closes_the_call(form: str, command: str) -> None:
    assert commands(BEGIN + form % json.dumps({"command": command}) + END) == [command]


@pytest.mark.parametrize("form", FORMS)
def test_calls_follow_each_other_in_one_section(form: str) -> None:
    assert commands(BEGIN + form % '{"command": "a"}' + form % '{"command": "b"}' + END) == ["a", "b"]


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_was_cut_off_is_none(form: str) -> None:
    text = BEGIN + (form % '{"command": "rm -rf build"}').split("build")[0]
    assert read(text, reason="length").calls == []
