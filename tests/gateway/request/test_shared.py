"""What all requests work with: the configuration as the settings make it, and who is being answered."""

import asyncio
import json
from typing import Any

import pytest

from gateway.config.load import load
from gateway.core.client import Client
from gateway.core.errors import ConfigError, Draining, GatewayError, Unauthenticated
from gateway.core.rules import ModelRule
from gateway.request.deadline import Deadline
from gateway.request.shared import Configuration, UnderWay
from gateway.wire.chat_request import parse_request
from strategies.factory import Capability, load_strategies
from tests.support.client import TOOLS, chat

MODEL = "qwen3-coder"
KEY = "a-word-that-opens-the-gateway"


def configured(**settings: str) -> Configuration:
    loaded = load({"UPSTREAM_URL": "http://127.0.0.1:1/v1", "STORE_URL": "memory://", **settings})
    return Configuration.build(loaded, load_strategies().strategies, upstream_url=None)


def decided(
    found: Configuration, arm: Any = "live", *, model: str = "qwen3-coder", is_chat: bool = True
) -> tuple[str, str]:
    request = parse_request(json.dumps(chat(model=model, tools=TOOLS)).encode())
    chosen = found.decide(request, Capability(), Client(), arm, "openai", asked=model, is_chat=is_chat)
    return chosen.strategy.name, chosen.reason


# --- The configuration


def test_a_rule_for_a_strategy_that_is_not_there_is_a_fault_of_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"^STRATEGY_RULES: .*of_tomorrow"):
        configured(STRATEGY_RULES="m=of_tomorrow")


def test_other_settings_have_another_digest() -> None:
    assert configured().digest == configured().digest != configured(CANARY_PERCENT="7").digest


def test_the_demo_keeps_all_of_its_scripts_unless_it_is_told_otherwise() -> None:
    def keeps(**settings: str) -> str:
        loaded = load({"STORE_URL": "memory://", **settings})
        return Configuration.build(loaded, load_strategies().strategies, upstream_url="http://127.0.0.1:1/v1").keeps

    assert (keeps(), keeps(AUDIT_BODIES="none")) == ("full", "none")
    assert configured().keeps != "full"


@pytest.mark.parametrize(
    ("model", "mapping"),
    [
        *(("claude-sonnet", "claude_text_editor"), ("vendor/Claude-Sonnet", "claude_text_editor")),
        *(("gpt-5", "apply_patch"), ("llama", None)),
    ],
)
def test_a_mapping_of_tools_is_found_by_the_model_with_and_without_its_vendor(model: str, mapping: str | None) -> None:
    found = configured(TOOL_MAP="claude*=claude_text_editor,gpt-5*=apply_patch")
    assert found.tool_map(model, None) == mapping


def test_the_mapping_of_a_rule_wins() -> None:
    found = configured(TOOL_MAP="m=apply_patch")
    assert found.tool_map("m", ModelRule(match="m", tool_map="claude_text_editor")) == "claude_text_editor"
    assert found.tool_map("m", ModelRule(match="m")) == "apply_patch"


@pytest.mark.parametrize(
    ("address", "trusted"),
    [("10.1.2.3", True), ("10.2.0.1", False), ("fd00::1", True), ("no address", False), ("", False), (None, False)],
)
def test_a_proxy_is_trusted_by_its_own_address(address: str | None, trusted: bool) -> None:
    assert configured(TRUSTED_PROXIES="10.1.0.0/16,fd00::/8").is_trusted(address) is trusted
    assert not configured().is_trusted(address)


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        *(({}, True), ({"GATEWAY_API_KEYS": KEY}, False), ({"GATEWAY_HOST": "::1"}, True)),
        *(
            ({"GATEWAY_ALLOWED_HOSTS": "gate.example"}, False),
            ({"GATEWAY_ALLOWED_ORIGINS": "https://a.example"}, False),
        ),
    ],
)
def test_a_gateway_is_its_users_own_where_nobody_else_is_let_in(settings: dict[str, str], own: bool) -> None:
    assert configured(**{"GATEWAY_HOST": "127.0.0.1", **settings}).is_own is own


def test_where_keys_are_asked_for_only_a_right_one_opens() -> None:
    found = configured(GATEWAY_API_KEYS=KEY)
    assert found.has_keys
    assert found.authenticate(KEY) is not None
    for wrong in ("", None, KEY.upper(), f"{KEY} "):
        with pytest.raises(Unauthenticated):
            found.authenticate(wrong)
    assert configured().authenticate(None) is None


def test_in_the_arm_that_is_off_all_passes_through() -> None:
    found = configured(STRATEGY_RULES="qwen*=xml_prompt")
    assert decided(found)[0] == "xml_prompt"
    assert decided(found, "off") == ("passthrough", "off")
    assert decided(found, is_chat=False)[0] == "xml_prompt"


def test_a_list_of_models_promises_only_what_a_request_would_get() -> None:
    def promised(**settings: str) -> str:
        found = configured(STRATEGY_RULES="qwen*=xml_prompt", **settings)
        return found.strategy_of("qwen3", Capability(), "openai", asked="qwen3")

    assert promised() == "xml_prompt"
    assert promised(TRANSFORM_MODE="off") == promised(TOOL_CALLING_ENABLED="false") == "passthrough"


def test_options_are_made_once_for_a_dialect() -> None:
    found = configured()
    assert found.options("hermes") is found.options("hermes")
    assert found.options("hermes").dialect == "hermes"
    assert found.options(None).dialect is None


# --- Who is being answered


class Lasting:
    """A request, as far as it is told of."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.told_at_s = 0.0

    def lasts(self, age_s: float) -> None:
        self.told_at_s = age_s


async def test_those_that_last_are_told_the_oldest_first_up_to_a_time() -> None:
    under_way = UnderWay()
    requests = [Lasting(at) for at in (1.0, 2.0, 3.0)]
    under_way.waits = {Deadline(): requests[0], Deadline(): None, Deadline(): requests[1], Deadline(): requests[2]}
    assert len(under_way) == 4
    assert [*under_way.lasting(3.0)] == requests[:2]
    assert [*under_way.lasting(1.0)] == []


async def test_an_interruption_reaches_every_wait_with_an_error_of_its_own() -> None:
    under_way, seen = UnderWay(), []

    async def waits() -> None:
        deadline = Deadline()
        under_way.waits[deadline] = None
        try:
            await deadline.within(deadline.now() + 30, asyncio.Event().wait())
        except GatewayError as error:
            seen.append(error)
        finally:
            del under_way.waits[deadline]

    tasks = [asyncio.create_task(waits()) for _ in range(3)]
    await asyncio.sleep(0)  # each begins to wait
    assert len(under_way) == 3
    under_way.interrupt(lambda: Draining("it stops"))
    await asyncio.gather(*tasks)
    assert len({id(error) for error in seen}) == 3
    assert len(under_way) == 0


async def test_the_end_of_all_is_waited_for_as_long_as_there_is_time() -> None:
    under_way = UnderWay()
    first, second = Deadline(), Deadline()
    under_way.waits = {first: None}
    assert not await under_way.ended(0.01)
    waiting = asyncio.create_task(under_way.ended(20.0))
    await asyncio.sleep(0)
    under_way.waits[second] = None
    for deadline in (first, second):
        del under_way.waits[deadline]
        assert under_way.is_empty is not None
        under_way.is_empty.set()
        await asyncio.sleep(0)
    assert await waiting
    assert await UnderWay().ended(0.0)


# --- What is shared


async def test_how_an_upstream_fares_and_a_routes_gauge_are_one_for_all_requests(gateway: Any, upstream: Any) -> None:
    shared = (await gateway(upstream.url)).shared
    assert shared.breaker("a") is shared.breaker("a") is not shared.breaker("b")
    gauge = shared.in_flight("chat")
    assert shared.in_flights["chat"] is gauge
    shared.take_secret(b"another")
    assert shared.secret == b"another"
    assert "another" not in repr(shared)
