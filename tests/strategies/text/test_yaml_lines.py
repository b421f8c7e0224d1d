"""The YAML that models write between tags: what is read, and what is refused because it could mean two things."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from strategies.text.yaml_lines import NoMapping, read_mapping
from tests.support.cost import assert_linear

READ = {
    "scalars stay text": ("a: 1\nb: true\nc: null\nd: 007\n", {"a": "1", "b": "true", "c": "null", "d": "007"}),
    "no value": ("a:\nb: x\n", {"a": None, "b": "x"}),
    "colons and stars in a value": ("cmd: echo a: b\nglob: *.py\n", {"cmd": "echo a: b", "glob": "*.py"}),
    "a literal block": ("a: |\n  one\n    two\n\n  three\nb: x\n", {"a": "one\n  two\n\nthree\n", "b": "x"}),
    "a literal block without its end": ("a: |-\n  one\n\n\nb: x\n", {"a": "one", "b": "x"}),
    "a literal block with all of its end": ("a: |+\n  one\n\n\nb: x\n", {"a": "one\n\n\n", "b": "x"}),
    "a block with its own indentation": ("a: |2\n    one\n  two\n", {"a": "  one\ntwo\n"}),
    "the indicators the other way round": ("a: |-2\n    one\n  two\n", {"a": "  one\ntwo"}),
    "a folded block": ("a: >\n  one\n  two\n\n  three\n    four\n  five\n", {"a": "one two\nthree\n  four\nfive\n"}),
    "a folded block without its end": ("a: >-\n  one\n  two\n", {"a": "one two"}),
    "an empty block": ("a: |\nb: x\n", {"a": "", "b": "x"}),
    "a block of keys": ("a: |\n  k: v\n  - w\n", {"a": "k: v\n- w\n"}),
    "a plain value over lines": ("a: one\n  two\n\n  three\n", {"a": "one two\nthree"}),
    "a plain value below its key": ("a:\n  one\nb: x\n", {"a": "one", "b": "x"}),
    "double quotes": ('a: "x: \\u00e9\\n\\"\\x41\\U0001F9EA"\n', {"a": 'x: é\n"A🧪'}),
    "double quotes over lines": ('a: "one\n  two"\n', {"a": "one two"}),
    "single quotes": ("a: 'it''s # fine'\n", {"a": "it's # fine"}),
    "quoted keys": ("\"a\": 1\n'b c': 2\n", {"a": "1", "b c": "2"}),
    "flow values": ('a: [1, "x"]\nb: {"c": {"d": null}}\n', {"a": [1, "x"], "b": {"c": {"d": None}}}),
    "a list": ("a:\n  - one\n  - 'two'\nb: x\n", {"a": ["one", "two"], "b": "x"}),
    "a list at its key's own indentation": ("a:\n- one\n- two\nb: x\n", {"a": ["one", "two"], "b": "x"}),
    "a list of mappings": ("a:\n  - b: 1\n    c: 2\n  - b: 3\n", {"a": [{"b": "1", "c": "2"}, {"b": "3"}]}),
    "nested mappings": ("a:\n  b:\n    c: 1\n  d: 2\n", {"a": {"b": {"c": "1"}, "d": "2"}}),
    "comments on their own lines": ("# first\na: 1\n  # second\nb: 2\n", {"a": "1", "b": "2"}),
    "indentation all over": ("    a: 1\n    b: 2\n    ", {"a": "1", "b": "2"}),
    "carriage returns": ("a: |\r\n  one\r\nb: 2\r\n", {"a": "one\n", "b": "2"}),
}
REFUSED = {
    "nothing": "",
    "prose": "Some words\n",
    "a list alone": "- a\n- b\n",
    "a comment behind a value": "a: x # or y\n",
    "a value that is a comment sign": "a: one\n  # two\nb: 'x' #\n",
    "a key twice": "a: 1\na: 2\n",
    "a key inside a plain value": "a: one\n  b: two\n",
    "text behind quotes": 'a: "one" two\n',
    "quotes that never end": 'a: "one\n',
    "an escape nobody knows": 'a: "\\q"\n',
    "half a character": 'a: "\\ud83e"\n',
    "a tab as indentation": "a:\n\tb: 1\n",
    "a flow value that is no JSON": "a: {b: 1}\n",
    "less indentation than before": "  a: 1\nb: 2\n",
    "a block that is not deep enough": "a: |4\n  one\n",
    "text behind the mapping": "a: 1\nand more\n",
    "a list in a list": "a:\n  - - b\n",
    "deeper lines below a finished value": 'a: "x"\n  b: 1\n',
    "lists without end": "a:\n" + "".join(f"{' ' * 2 * depth}- a:\n" for depth in range(1, 40)) + " " * 82 + "b",
    "nesting without end": "".join(f"{' ' * depth}a:\n" for depth in range(40)) + " " * 40 + "b",
}


@pytest.mark.parametrize("name", READ)
def test_mapping_is_read(name: str) -> None:
    text, expected = READ[name]
    assert read_mapping(text) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_mean_two_things_is_refused(name: str) -> None:
    with pytest.raises(NoMapping):
        read_mapping(REFUSED[name])


@pytest.mark.cost
@pytest.mark.parametrize(
    "line",
    ["a{0}: x\n", "  - a\n", "\n", "# c\n", "  x y\n", "a{0}: |\n  x\n\n\n", "  - k: v\n", "a{0}: 'x\n"],
)
def test_many_lines_cost_what_they_measure(line: str) -> None:
    def reading(count: int) -> Callable[[], None]:
        text = "a: x\nb:\n" + "".join(line.format(number) for number in range(count))

        def read() -> None:
            with suppress(NoMapping):
                read_mapping(text)

        return read

    assert_linear(reading, 4_000)
