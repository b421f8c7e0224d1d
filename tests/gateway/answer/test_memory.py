"""What a stream keeps while a call is open in it: its events, and its text once, whichever dialect reads it."""

import tracemalloc
from pathlib import Path

import pytest

from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from tests.support.chat import event, numbered_ids
from tests.support.lateness import tokens, ways

CODE = Path(__file__).read_text(encoding="utf-8").replace("</", "< /")
JSON_OPENER = '{"name": "write", "arguments": {"filePath": "/a", "content": "'
OPENERS = {
    "xml_prompt generic_xml": "<write>\n<filePath>/a</filePath>\n<content>",
    "xml_prompt qwen3_coder": "<function=write>\n<parameter=filePath>\n/a\n</parameter>\n<parameter=content>\n",
    "xml_prompt hermes": f"<tool_call>\n{JSON_OPENER}",
    "recovery deepseek-chat": f"```json\n{JSON_OPENER}",
    "xml_prompt pythonic": '[write(filePath="/a", content="',
}
MOST = 2.2
"""Bytes for each byte of a call whose text is code in pieces of tokens: what came, and how it was cut, are 1.5."""


@pytest.mark.parametrize("way", OPENERS)
def test_an_open_call_is_held_about_twice(way: str) -> None:
    text = CODE * 12
    if OPENERS[way][-1] == '"':
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    data = [event({"content": part}, None) for part in (OPENERS[way], *tokens(text))]
    exchange = StreamExchange(ways()[way], make_id=numbered_ids(), limits=Limits())
    exchange.feed(data[0])
    for each in data[1:100]:  # what all streams share is there by now
        exchange.feed(each)
    tracemalloc.start()
    try:
        for each in data[100:]:
            assert exchange.feed(each) == b""
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < MOST * len(text) + 16_000
