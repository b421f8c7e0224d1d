"""Keys and values as GLM writes them, between the tags or tokens of other families."""

import json
from collections.abc import Callable

import pytest

from tests.support.reading import read, read_every_way

Write = Callable[..., str]


def k2(*pairs: tuple[str, str], name: str = "bash") -> str:
    body = "".join(
        f"<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>{value}</ifm|arg_value>\n" for key, value in pairs
    )
    return f"<ifm|tool_calls>\n<ifm|tool_call>{name}\n{body}</ifm|tool_call>\n</ifm|tool_calls>"


def iquest(*pairs: tuple[str, str], name: str = "bash", word: str = "iquest") -> str:
    body = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in pairs)
    return f"<{word}_tool_call>{name}{body}</{word}_tool_call>"


def longcat(*pairs: tuple[str, str], name: str = "bash") -> str:
    body = "".join(
        f"<longcat_arg_key>{key}</longcat_arg_key>\n<longcat_arg_value>{value}</longcat_arg_value>\n"
        for key, value in pairs
    )
    return f"<longcat_tool_call>{name}\n{body}</longcat_tool_call>"


def solar(*pairs: tuple[str, str], name: str = "bash") -> str:
    body = "".join(f"<|tool_arg:start|>{key}<|tool_arg:value|>{value}<|tool_arg:end|>\n" for key, value in pairs)
    return f"<|tool_call:start|>{name}\n{body}<|tool_call:end|>"


FAMILIES: list[Write] = [k2, iquest, longcat, solar]


def arguments_of(text: str) -> list[object]:
    return [json.loads(arguments) for _, arguments in read_every_way(text).calls]


@pytest.mark.parametrize("write", FAMILIES)
def test_values_are_typed_by_the_schema(write: Write) -> None:
    assert arguments_of(write(("command", "30"), ("timeout", "30"))) == [{"command": "30", "timeout": 30}]


@pytest.mark.parametrize("value", ["a < b", "<b>x</b>", "a\n\nb", ' "quoted" '])
@pytest.mark.parametrize("write", FAMILIES)
def test_a_value_is_what_stands_between_its_tags(write: Write, value: str) -> None:
    assert arguments_of(write(("command", value))) == [{"command": value}]


@pytest.mark.parametrize("write", FAMILIES)
def test_calls_follow_each_other(write: Write) -> None:
    text = write(("command", "a")) + "\n" + write(("filePath", "b"), name="read")
    assert [name for name, _ in read_every_way(text).calls] == ["bash", "read"]


@pytest.mark.parametrize("write", FAMILIES)
def test_a_key_that_is_given_twice_is_no_call(write: Write) -> None:
    assert read_every_way(write(("command", "a"), ("command", "b"))).calls == []


@pytest.mark.parametrize("write", FAMILIES)
def test_a_call_that_was_cut_off_is_none(write: Write) -> None:
    text = write(("command", "rm -rf build"))
    text = text[: text.index("build") + 3]
    found = read(text, reason="length")
    assert (found.calls, found.text) == ([], text)


def test_iquest_coder_has_a_word_of_its_own() -> None:
    assert arguments_of(iquest(("command", "ls"), word="iquestcoder")) == [{"command": "ls"}]


@pytest.mark.parametrize(
    ("key", "kind", "told"), [("command", "string", "30"), ("timeout", "integer", 30), ("timeout", "int", 30)]
)
def test_k2_may_say_what_type_a_value_is_of(key: str, kind: str, told: object) -> None:
    name = f"<ifm|arg_key>{key}</ifm|arg_key>\n"
    text = k2(*dict([("command", "ls"), (key, "30")]).items())
    [found] = arguments_of(text.replace(name, f"{name}<ifm|arg_type>{kind}</ifm|arg_type>"))
    assert isinstance(found, dict)
    assert found[key] == told


@pytest.mark.parametrize(
    "around",
    ["<longcat_tool_call>\n%s\n</longcat_tool_call>", "<ifm|tool_calls>\n<ifm|tool_call>%s</ifm|tool_call>"],
)
def test_json_may_stand_in_the_place_of_the_pairs(around: str) -> None:
    assert arguments_of(around % '{"name": "bash", "arguments": {"command": "ls"}}') == [{"command": "ls"}]


def test_a_section_without_a_call_is_text() -> None:
    text = "<ifm|tool_calls>\nNothing to call."
    assert read_every_way(text).text == text


def test_the_line_break_before_the_closer_of_spark_is_none_of_a_value_without_its_own() -> None:
    head = (
        "<|tool_call|>\nwrite<arg_key>filePath</arg_key><arg_value>a</arg_value><arg_key>content</arg_key><arg_value>"
    )
    for content, closer in (("x = 1", ""), ("x = 1\n", "</arg_value>"), ("x = 1\n", "")):
        (call,) = read_every_way(f"{head}{content}{closer}\n<|/tool_call|>").calls
        assert call == ("write", f'{{"filePath":"a","content":{json.dumps(content)}}}')
