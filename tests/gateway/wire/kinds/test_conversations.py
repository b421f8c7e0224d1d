"""The same conversations through every kind: OpenAI clients see no difference, and no server has cause to refuse."""

from typing import Any

import pytest

from gateway.wire.kinds.anthropic import AnthropicKind
from tests.support.anthropic_server import AnthropicServer
from tests.support.kind_driver import Driver, comparable, in_pieces
from tests.support.turns import Exchange, conversation


def anthropic(exchanges: list[Exchange]) -> Driver:
    server = AnthropicServer(turns=[exchange.turn for exchange in exchanges])
    return Driver(kind=AnthropicKind(), server=server, key="sk-ant", model="claude-sonnet-4-5")


DRIVERS: dict[str, Any] = {"anthropic": anthropic}


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("kind", DRIVERS)
def test_an_answer_is_the_same_through_every_kind(kind: str, seed: int) -> None:
    exchanges = conversation(seed)
    driver = DRIVERS[kind](exchanges)
    driver.cut = in_pieces(1 + seed % 17)
    streamed = driver.converse(exchanges, stream=True)
    whole = DRIVERS[kind](exchanges).converse(exchanges, stream=False)
    for exchange, one, other in zip(exchanges, streamed, whole, strict=True):
        expected = exchange.turn.message()
        assert comparable(one.message) == expected
        assert comparable(other.message) == expected
        assert one.finish_reason == other.finish_reason == exchange.turn.finish_reason
        assert one.completion["usage"] == other.completion["usage"]
        assert one.completion["usage"]["prompt_tokens"] == exchange.turn.fresh + exchange.turn.cached
        assert one.completion["usage"]["completion_tokens"] == exchange.turn.output
