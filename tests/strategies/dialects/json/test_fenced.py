"""JSON in fences or bare: a call only where nothing but a call stands there."""

import pytest

from tests.support.reading import read_every_way

CALL = '{"name": "read", "arguments": {"filePath": "a.py"}}'
READ = ("read", '{"filePath":"a.py"}')


@pytest.mark.parametrize(
    "text", [f"```json\n{CALL}\n```", f"```\n{CALL}\n```", CALL, f"[{CALL}]", f"I read it.\n\n```json\n{CALL}\n```"]
)
def test_a_call_of_a_declared_tool_is_one_in_a_fence_and_bare(text: str) -> None:
    assert read_every_way(text).calls == [READ]


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{CALL.replace('read', 'unheard')}\n```",
        f"For example:\n```json\n{CALL}\n```\nis how a call looks.",
        '```json\n{"name": "read"}\n```\nis a record of mine.',
        '{"name": "Alice", "arguments": {"filePath": "a.py"}}',
        f"```python\nx = {CALL}\n```",
    ],
)
def test_what_may_be_data_stays_as_it_is(text: str) -> None:
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
