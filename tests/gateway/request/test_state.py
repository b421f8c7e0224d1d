"""A request's state: what is read of the client once, for all who need it."""

import asyncio
from typing import Any

import pytest
from multidict import CIMultiDict

from gateway.config.load import load
from gateway.core.errors import Draining
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind
from gateway.kinds.shared.port import HttpAsk
from gateway.request import deadline as deadline_module
from gateway.request.deadline import Deadline
from gateway.request.head import HttpRequest
from gateway.request.servers import Upstream, upstreams_of
from tests.support.client import TOOLS, ask, chat
from tests.support.cost import Pulse
from tests.support.faulty_upstream import answer_json, completion

KEY = "a-word-that-opens-the-gateway"


class Counted(CIMultiDict[str]):
    """Headers that take down which of them were asked for."""

    asked: list[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.append(key)
        return super().get(key, default)


@pytest.mark.parametrize("header", [("Authorization", f"Bearer {KEY}"), ("X-Api-Key", KEY)])
async def test_what_the_client_shows_who_it_is_with_is_read_once(gateway, upstream, client, log, monkeypatch, header):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url, GATEWAY_API_KEYS=KEY, AUDIT_BODIES="full")
    asked: list[str] = []

    def counted(request: HttpRequest) -> Counted:
        headers = Counted(request._message.headers)
        headers.asked = asked
        return headers

    monkeypatch.setattr(HttpRequest, "headers", property(counted, lambda request, headers: None))
    got = await ask(client, running.url, chat(stream=False, tools=TOOLS), headers=dict([header]))
    assert got.status == 200
    await log.record("request_ended")
    assert asked.count(header[0]) == 1
    assert max(asked.count("Authorization"), asked.count("X-Api-Key")) == 1


# --- Model servers as the settings describe them


TABLES = """
[upstreams.claude]
url = "https://a.example.com/v1"
kind = "anthropic"
api_key = "sk-one"
down_level = ["format"]
[upstreams.claude.anthropic]
auth = "bearer"
max_tokens = 4000
[upstreams.gemini]
url = "https://b.example.com/v1beta"
kind = "gemini"
gemini = { schema_field = "parametersJsonSchema" }
[upstreams.web]
url = "https://c.example.com"
kind = "qwen_web"
cookies = 'a=1; token="long-enough"; b=shorter'
[upstreams.web.qwen_web]
gone_codes = ["chat_is_over"]
"""


@pytest.fixture
def upstreams(tmp_path):
    path = tmp_path / "toolgate.toml"
    path.write_text(TABLES)
    return upstreams_of(load({"GATEWAY_CONFIG": str(path), "STORE_URL": "memory://"}), None)


def test_each_kind_has_the_options_of_its_table(upstreams: dict[str, Upstream]) -> None:
    claude, gemini, web = (upstreams[name].kind for name in ("claude", "gemini", "web"))
    assert isinstance(claude, AnthropicKind)
    assert (claude.options.auth, claude.options.max_tokens) == ("bearer", 4000)
    assert isinstance(gemini, GeminiKind)
    assert gemini.options.schema_field == "parametersJsonSchema"
    assert isinstance(web, QwenWebKind)
    assert web.options.gone_codes == {"chat_is_over"}
    assert upstreams["claude"].down_level == ("format",)


def test_what_proves_the_gateway_is_masked_as_it_stands_in_json(upstreams: dict[str, Upstream]) -> None:
    assert upstreams["claude"].masked(b'{"m": "sk-one"}') == b'{"m": "********"}'
    web = upstreams["web"]
    told = b'{"m": "a=1; token=\\"long-enough\\"; b=shorter", "n": "long-enough", "o": "1 shorter"}'
    assert web.masked(told) == b'{"m": "********", "n": "********", "o": "1 shorter"}'


def test_requests_go_below_the_servers_address(upstreams: dict[str, Upstream]) -> None:
    ask = HttpAsk(path="/models/a%2Fb:generate", query=(("alt", "sse"),))
    assert str(upstreams["gemini"].url(ask)) == "https://b.example.com/v1beta/models/a%2Fb:generate?alt=sse"


# ---


@pytest.fixture
async def never():
    return asyncio.get_running_loop().create_future()


async def soon(value):
    await asyncio.sleep(0)
    return value


async def test_what_comes_in_time_is_returned():
    deadline = Deadline()
    assert await deadline.within(deadline.now() + 5, soon("x")) == "x"
    deadline.close()


async def test_what_does_not_come_in_time_is_given_up(never):
    deadline = Deadline()
    started = deadline.now()
    async with Pulse() as pulse:
        with pytest.raises(TimeoutError):
            await deadline.within(started + 0.02, never)
    assert deadline.now() - started >= 0.02
    assert pulse.seconds < 1.0
    assert never.cancelled()
    deadline.close()


async def test_a_later_deadline_is_kept_by_the_timer_of_an_earlier_one(never):
    deadline = Deadline()
    start = deadline.now()
    for _ in range(3):
        await deadline.within(start + 0.2, soon(1))
    with pytest.raises(TimeoutError):
        await deadline.within(start + 0.25, never)
    assert deadline.now() - start >= 0.25
    deadline.close()


async def test_an_earlier_deadline_is_not_missed_by_the_timer_of_a_later_one(never):
    deadline = Deadline()
    start = deadline.now()
    await deadline.within(start + 60, soon(1))
    async with Pulse() as pulse:
        with pytest.raises(TimeoutError):
            await deadline.within(start + 0.02, never)
    assert pulse.seconds < 5
    deadline.close()


async def test_time_between_waits_cancels_nothing():
    deadline = Deadline()
    await deadline.within(deadline.now() + 0.01, soon(1))
    await asyncio.sleep(0.03)
    assert await deadline.within(deadline.now() + 1, soon(2)) == 2
    deadline.close()


async def test_an_error_of_what_is_awaited_comes_through():
    async def fails():
        await asyncio.sleep(0)
        raise LookupError

    deadline = Deadline()
    with pytest.raises(LookupError):
        await deadline.within(deadline.now() + 1, fails())
    deadline.close()


async def test_an_interruption_ends_the_present_wait_once(never):
    deadline = Deadline()
    asyncio.get_running_loop().call_soon(deadline.interrupt, Draining("x"))
    with pytest.raises(Draining):
        await deadline.within(deadline.now() + 5, never)
    assert await deadline.within(deadline.now() + 5, soon("after")) == "after"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    deadline.close()


async def test_an_interruption_before_a_wait_ends_that_wait_even_if_nothing_would_be_waited_for():
    async def at_once():
        return 1

    deadline = Deadline()
    deadline.interrupt(Draining("x"))
    with pytest.raises(Draining):
        await deadline.within(deadline.now() + 5, at_once())
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    deadline.close()


@pytest.mark.parametrize("is_interrupted", [False, True])
async def test_a_cancellation_from_outside_stays_one_and_wins_over_an_interruption(never, is_interrupted):
    waits = []

    async def waiting():
        deadline = Deadline()
        waits.append(deadline)
        try:
            await deadline.within(deadline.now() + 5, never)
        finally:
            deadline.close()

    task = asyncio.ensure_future(waiting())
    await asyncio.sleep(0)
    if is_interrupted:
        waits[0].interrupt(Draining("x"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_wait_far_from_its_end_moves_no_timer():
    deadline = Deadline()
    await deadline.within(deadline.now() + 600, soon(1))
    timer = deadline._timer
    for seconds in (300, 600, 30, deadline_module.LONGEST_SLEEP_S + 1):
        await deadline.within(deadline.now() + seconds, soon(1))
    assert deadline._timer is timer
    deadline.close()


async def test_a_wait_longer_than_the_timers_sleep_still_ends_in_time(never, monkeypatch):
    monkeypatch.setattr(deadline_module, "LONGEST_SLEEP_S", 0.01)
    deadline = Deadline()
    started = deadline.now()
    with pytest.raises(TimeoutError):
        await deadline.within(started + 0.05, never)
    assert 0.05 <= deadline.now() - started < 1
    deadline.close()
