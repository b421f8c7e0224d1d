"""The search for answers that cost more than their length: that it sees one, and that it finds none in a few rounds."""

import pytest

from gateway.core.events import Event
from strategies.base import FinishReason
from strategies.reading.reader import Reader
from tests.fuzz.fuzz_cost import fragments, growth, search


def test_every_opener_is_among_what_is_tried() -> None:
    assert {"<tool_call>", "[TOOL_CALLS]", "{", "<read", "```\n", "</think>"} <= set(fragments())


@pytest.mark.cost
def test_no_unit_that_is_drawn_costs_more_than_its_length() -> None:
    assert search(12, 5) == []


@pytest.mark.cost
def test_work_that_grows_with_what_came_before_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Reader.step

    def slow(self: Reader, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        for _ in range(self._window.offset // 2):
            len(text)
        return step(self, text, reason)

    assert growth("abc <d> ", 4_000, 64) < 1.3
    monkeypatch.setattr(Reader, "step", slow)
    assert growth("abc <d> ", 4_000, 64) > 1.3
