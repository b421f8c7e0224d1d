"""The same conversations through every kind: OpenAI clients see no difference, and no server has cause to refuse."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.ask import GeminiOptions
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind
from gateway.kinds.responses.dialogue import ResponsesKind
from tests.support.anthropic_server import AnthropicServer
from tests.support.gemini_server import GeminiServer
from tests.support.kind_driver import Driver, Got, comparable, in_pieces
from tests.support.qwen_web_server import QwenWebServer
from tests.support.responses_server import ResponsesServer
from tests.support.turns import Exchange, Turn, conversation

MakeDriver = Callable[[list[Turn]], Driver]


def anthropic(model: str) -> MakeDriver:
    return lambda turns: Driver(kind=AnthropicKind(), server=AnthropicServer(turns), key="sk-ant", model=model)


def gemini(model: str, options: GeminiOptions) -> MakeDriver:
    return lambda turns: Driver(kind=GeminiKind(options), server=GeminiServer(turns), key="AIza", model=model)


def responses(model: str) -> MakeDriver:
    return lambda turns: Driver(kind=ResponsesKind(), server=ResponsesServer(turns), key="sk-resp", model=model)


def qwen_web(turns: list[Turn]) -> Driver:
    return Driver(kind=QwenWebKind(), server=QwenWebServer(turns), key="web-token", model="qwen3-max")


WITH_CALLS: dict[str, MakeDriver] = {
    "anthropic": anthropic("claude-sonnet-4-5"),
    "anthropic_adaptive": anthropic("claude-opus-4-7"),
    "responses": responses("gpt-4o"),
    "responses_thinking": responses("gpt-5.5"),
    "gemini": gemini("gemini-3-flash", GeminiOptions()),
    "gemini_older": gemini("gemini-2.5-pro", GeminiOptions(schema_field="parametersJsonSchema")),
}


def check(exchanges: list[Exchange], gots: list[Got]) -> None:
    for exchange, got in zip(exchanges, gots, strict=True):
        turn, usage = exchange.turn, got.completion["usage"]
        assert comparable(got.message) == turn.message()
        assert got.finish_reason == turn.finish_reason
        assert usage["prompt_tokens"] == turn.fresh + turn.cached
        assert usage["completion_tokens"] == turn.output
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def every_other() -> list[Any]:
    """Each conversation through half of the kinds, and each kind with half of them; all where it may take long."""
    return [
        pytest.param(seed, kind, marks=[pytest.mark.long] if (seed + number) % 2 else [])
        for seed in range(200)
        for number, kind in enumerate(WITH_CALLS)
    ]


@pytest.mark.parametrize(("seed", "kind"), every_other())
def test_an_answer_is_the_same_through_every_kind(seed: int, kind: str) -> None:
    exchanges = conversation(seed)
    make = WITH_CALLS[kind]
    driver = make([exchange.turn for exchange in exchanges])
    driver.cut = in_pieces(1 + seed % 17)
    streamed = driver.converse(exchanges, stream=True)
    check(exchanges, streamed)
    whole = make([exchange.turn for exchange in exchanges]).converse(exchanges, stream=False)
    check(exchanges, whole)
    for one, other in zip(streamed, whole, strict=True):
        assert one.completion["usage"] == other.completion["usage"]
        assert one.completion["id"] == other.completion["id"]


@pytest.mark.parametrize("seed", range(200))
def test_a_server_that_keeps_the_conversation_has_all_of_it(seed: int) -> None:
    exchanges = [exchange for exchange in conversation(seed, with_calls=False) if exchange.turn.end == "stop"]
    driver = qwen_web([exchange.turn for exchange in exchanges])
    driver.cut = in_pieces(1 + seed % 17)
    check(exchanges, driver.converse(exchanges, stream=True))
    server = driver.server
    assert isinstance(server, QwenWebServer)
    assert [path for path, _ in server.requests].count("/api/v2/chats/new") == min(1, len(exchanges))
    if exchanges:
        said = [text for _, text in server.line("chat-1", f"answer-chat-1-{len(exchanges)}")]
        assert said[-1] == exchanges[-1].turn.text
        assert len(said) == sum(len(exchange.news) + 1 for exchange in exchanges)
    whole = qwen_web([exchange.turn for exchange in exchanges])
    check(exchanges, whole.converse(exchanges, stream=False))
