"""The reader at its edges: what it holds, and calls in fences that something follows."""

import pytest

from gateway.core.events import Text
from strategies.base import Options
from strategies.reading.factory import reader_factory
from strategies.reading.reader import Reader
from tests.support.reading import AGENT_TOOLS, read_every_way

CALL = '<longcat_tool_call>{"name": "read", "arguments": {"filePath": "/a"}}</longcat_tool_call>'
FENCE = '```json\n{"name": "read", "arguments": {"filePath": "/a"}}\n```\n'
READ = [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize(
    "text",
    [
        "Words, then\n<read>\n<filePath>/a</filePath>\n</read>\nmore",
        f"Words.\n\n{FENCE}\nand words",
        f"```python\nx = 1\n{CALL}\n```\n",
        '<think>\nhm\n<tool_call>\n{"name": "read"',
        "Some `inline <read> code and no end",
    ],
    ids=["tags", "fence", "tokens in a fence", "reasoning", "inline code"],
)
def test_what_is_held_and_what_is_told_are_all_that_came(text: str) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m")()
    assert isinstance(reader, Reader)
    told = 0
    for count, char in enumerate(text, 1):
        told += sum(len(event.raw) for event in reader.feed(char))
        assert told + reader.held == count
        assert reader.held or reader.idle
    told += sum(len(event.raw) for event in reader.finish("stop"))
    assert (told, reader.held) == (len(text), 0)


@pytest.mark.parametrize(
    "text",
    [
        "Use `ls`, then `cat x`, in ``a ` b`` and so on.",
        "About ~5 of ~~them~~ stay.",
        "1 < 2, a [b] and {c}\nnext line, ",
    ],
)
def test_text_that_comes_at_once_is_told_at_once(text: str) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m")()
    assert reader.feed(text) == [Text(text)]
    assert reader.feed("~/x") == [Text("~/x")]


@pytest.mark.parametrize("fence", ["~~~", "~~~~", "```"])
@pytest.mark.parametrize("info", ["json", ""])
def test_a_fence_may_come_cut_anywhere(fence: str, info: str) -> None:
    found = read_every_way(f'~a ~~b\n{fence}{info}\n{{"name": "read", "arguments": {{"filePath": "/a"}}}}\n{fence}\n')
    assert found.calls == READ


@pytest.mark.parametrize("end", ["<|im_end|>", "</s>", "\n\n<|eot_id|>\n"])
def test_tokens_behind_a_fence_do_not_make_its_call_an_example(end: str) -> None:
    assert read_every_way(f"```python\nx = 1\n{CALL}\n```\n{end}").calls == READ
    assert read_every_way(FENCE + end).calls == READ
    assert read_every_way(f"{FENCE}{end}\n{FENCE}").calls == READ * 2


@pytest.mark.parametrize("end", ["and so on", "<|im_end|> and so on", "</s>\nand so on"])
def test_words_behind_a_fence_make_its_call_an_example(end: str) -> None:
    for text in (f"```python\nx = 1\n{CALL}\n```\n{end}", FENCE + end):
        found = read_every_way(text)
        assert (found.calls, found.text) == ([], text)
