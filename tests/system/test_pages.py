"""A real browser on the machine of a gateway without keys: what pages of strangers can do there, and what listed can.

The scripted model server counts: a request that reaches it would have been paid for. It lets every page read its
answers, as many servers do, so that only the gateway stands between.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.app import Gateway
from gateway.core.records import CallRecord, LabelRecord, RequestRecord
from gateway.state.sqlite import SqliteStore
from tests.support.browser import Page, becomes, browser, holds, inspector, needs_chromium, press
from tests.support.client import chat
from tests.support.faulty_upstream import FaultyUpstream, answer_json, completion

StartGateway = Callable[..., Awaitable[Gateway]]

SHOWN_S = 30.0

LAX = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}

BODY = json.dumps(chat(stream=False))

# Each way in which a page can ask, by name, and whatever of the answer it could get hold of.
WAYS = """
(async (url, body) => {
  const told = {};
  const seen = async (name, ask) => {
    const late = new Promise(resolve => setTimeout(resolve, 5000, 'never ends'));
    try { told[name] = await Promise.race([ask(), late]); } catch (error) { told[name] = null; }
  };
  const read = async answer => answer.type === 'opaque' ? null : answer.status + ' ' + await answer.text();
  const post = {method: 'POST', body};
  const json = {...post, headers: {'Content-Type': 'application/json'}};
  const chat = url + '/v1/chat/completions';
  await seen('simple post', async () => read(await fetch(chat, {...post, headers: {'Content-Type': 'text/plain'}})));
  await seen('post of no type', async () => read(await fetch(chat, {...post, body: new Blob([body])})));
  await seen('json', async () => read(await fetch(chat, json)));
  await seen('json with a key', async () =>
    read(await fetch(chat, {...json, headers: {...json.headers, Authorization: 'Bearer any'}})));
  await seen('no-cors post', async () => read(await fetch(chat, {...post, mode: 'no-cors'})));
  await seen('with credentials', async () => read(await fetch(chat, {...post, credentials: 'include'})));
  await seen('keep-alive', async () => read(await fetch(chat, {...post, mode: 'no-cors', keepalive: true})));
  await seen('get', async () => read(await fetch(url + '/v1/models')));
  await seen('health', async () => read(await fetch(url + '/healthz')));
  await seen('metrics', async () => read(await fetch(url + '/metrics')));
  await seen('front page', async () => read(await fetch(url + '/')));
  await seen('beacon', async () => { navigator.sendBeacon(chat, body); return null; });
  await seen('request of old', () => new Promise((resolve, reject) => {
    const asking = new XMLHttpRequest();
    asking.onload = () => resolve(asking.status + ' ' + asking.responseText);
    asking.onerror = reject;
    asking.open('POST', chat);
    asking.send(body);
  }));
  await seen('events', () => new Promise((resolve, reject) => {
    const source = new EventSource(url + '/v1/models');
    source.onmessage = event => { source.close(); resolve(event.data); };
    source.onerror = () => { source.close(); reject(); };
  }));
  for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
    await seen('form ' + enctype, () => new Promise(resolve => {
      const frame = document.createElement('iframe');
      frame.name = enctype + Math.random();
      document.body.appendChild(frame);
      const form = document.body.appendChild(document.createElement('form'));
      Object.assign(form, {method: 'POST', action: chat, enctype, target: frame.name});
      const field = form.appendChild(document.createElement('input'));
      field.name = body.slice(0, -1) + ', "x": "';
      field.value = '"}';
      frame.onload = () => resolve(frame.contentDocument && frame.contentDocument.body.innerText || null);
      form.submit();
    }));
  }
  return told;
})
"""

# What is asked for without an Origin: only what the browser says of the site tells it from the gateway's own.
EMBEDDED = """
(async url => {
  const made = [];
  for (const [tag, attribute] of [['img', 'src'], ['script', 'src'], ['iframe', 'src'], ['video', 'src']]) {
    await new Promise(resolve => {
      const element = document.createElement(tag);
      element.onload = () => { made.push(tag); resolve(); };
      element.onerror = resolve;
      element[attribute] = url + '/v1/models';
      document.body.append(element);
    });
  }
  await fetch(url + '/v1/models', {mode: 'no-cors'}).catch(() => null);
  return made.filter(tag => tag !== 'iframe');
})
"""


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    """A tab for which all names under .example are this machine."""
    async with browser(tmp_path / "profile", "--host-resolver-rules=MAP *.example 127.0.0.1") as opened:
        yield opened


@pytest.fixture
async def foreign(no_leaks: None) -> AsyncIterator[int]:
    """The port of somebody else's site."""

    async def shown(request: web.BaseRequest) -> web.Response:
        return web.Response(text="<!doctype html><title>x</title><body></body>", content_type="text/html")

    runner = web.ServerRunner(web.Server(shown), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def tried(page: Page, url: str) -> dict[str, str | None]:
    """What a page gets by asking in every way it has."""
    told: dict[str, str | None] = await page.value(f"{WAYS}({json.dumps(url)}, {json.dumps(BODY)})")
    assert len(told) == 17
    return told


@needs_chromium
async def test_a_strangers_page_reaches_nothing_and_reads_nothing(
    gateway: StartGateway, upstream: FaultyUpstream, page: Page, foreign: int
) -> None:
    upstream.script = answer_json(completion("read me"), headers=LAX)
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    elsewhere = await gateway(upstream.url, GATEWAY_HOST="0.0.0.0")  # noqa: S104 - what is tested
    for origin in (f"http://127.0.0.1:{foreign}", f"http://localhost:{foreign}", f"http://evil.example:{foreign}"):
        await page.open(f"{origin}/")
        for url in (running.url, elsewhere.url, running.url.replace("127.0.0.1", "localhost")):
            told = await tried(page, url)
            assert {name: told[name] for name in told if told[name] is not None} == {}, (origin, url)
            assert await page.value(f"{EMBEDDED}({json.dumps(url)})") == []
    assert upstream.requests == []


@needs_chromium
async def test_a_name_that_leads_to_this_machine_opens_nothing(
    gateway: StartGateway, upstream: FaultyUpstream, page: Page
) -> None:
    """To the browser the page and the gateway are then one origin: nothing but `Host` tells."""
    upstream.script = answer_json(completion("read me"), headers=LAX)
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    rebound = running.url.replace("127.0.0.1", "evil.example")
    for url in (rebound, (running.metrics_url or "").replace("127.0.0.1", "evil.example").removesuffix("/metrics")):
        await page.open(f"{url}/")
        assert "GATEWAY_ALLOWED_HOSTS" in await page.value("document.body.innerText")
        told = await tried(page, url)
        answers = [text for text in told.values() if text]
        assert answers
        assert all("wrong_host" in text for text in answers)
    assert upstream.requests == []


@needs_chromium
async def test_a_listed_page_works_and_a_link_leads_to_the_front_page(
    gateway: StartGateway, upstream: FaultyUpstream, page: Page, foreign: int
) -> None:
    upstream.script = answer_json(completion("read me"))
    listed = f"http://chat.example:{foreign}"
    running = await gateway(upstream.url, GATEWAY_ALLOWED_ORIGINS=listed)
    ask = """
    (async (url, body) => {
      const headers = {'Content-Type': 'application/json', Authorization: 'Bearer any', 'X-Stainless-Lang': 'js',
                       'X-Stainless-Retry-Count': '0', 'OpenAI-Beta': 'x'};
      const answer = await fetch(url + '/v1/chat/completions', {method: 'POST', headers, body});
      return [answer.status, answer.headers.get('X-Request-Id'), await answer.text()];
    })
    """
    called = f"({ask})({json.dumps(running.url)}, {json.dumps(BODY)})"

    await page.open(f"{listed}/")
    status, request_id, text = await page.value(called)
    assert (status, "read me" in text) == (200, True)
    assert request_id.startswith("req_")
    assert len(upstream.requests) == 1

    await page.open(f"http://evil.example:{foreign}/")
    refused: Any = await page.value(f"{called}.catch(error => null)")
    assert refused is None
    assert len(upstream.requests) == 1

    link = f"document.body.innerHTML = '<a href=\"{running.url}/\">x</a>'; document.querySelector('a').click()"
    await page.value(link)
    await until_shown(page, "Base URL")
    status, _, text = await page.value(called)  # from the gateway's own address
    assert (status, "read me" in text) == (200, True)
    assert len(upstream.requests) == 2


async def until_shown(page: Page, wanted: str) -> None:
    async with asyncio.timeout(SHOWN_S):
        while wanted not in await page.text():  # noqa: ASYNC110 - a browser tells nobody
            await asyncio.sleep(0.02)


# --- The inspector by keyboard alone, and as it is read aloud; what of its colours can be told apart


APP = Path(__file__).parents[2] / "gateway" / "inspector" / "app"

ROWS = "document.querySelectorAll('#rows li').length"

COUNT = 50

WIDGETS = frozenset(
    {"button", "checkbox", "combobox", "link", "listbox", "option", "radio", "searchbox", "spinbutton", "textbox"}
)

ACTIVE = """
(() => {
  const at = document.activeElement;
  if (at === document.body) return '';
  return at.id || at.dataset.filter || at.getAttribute('aria-label') || at.textContent.trim();
})()
"""

SEEN = """
(() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const isOutlined = style.outlineStyle !== 'none' && style.outlineWidth !== '0px';
  return at === document.body || at.matches(':focus-visible') && isOutlined;
})()
"""

IDS = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(each => each.id))"


def _request(number: int) -> RequestRecord:
    """Some of each: delivered, refused, and one that nobody can label."""
    is_refused = number % 3 == 1
    call = CallRecord(
        number=0,
        dialect="hermes",
        tool=f"tool_{number}",
        score=85 if is_refused else 97,
        decision="refused" if is_refused else "delivered",
        stage="known_tool" if is_refused else "sent",
        reason="low_confidence" if is_refused else "",
        sentence="0.85 is below 0.90" if is_refused else "",
        meant=True,
        before=f"<tool_call>{number}</tool_call>",
        span=(0, 11),
        after="" if is_refused else '{"name": "t", "arguments": {"path": "a"}}',
    )
    at = time.time() - number
    return RequestRecord(id=f"r{number}", at=at, key="k", model="llama", upstream="u", tools=1, calls=(call,))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "toolgate.db", timeout_s=5)
    yield opened
    await opened.close()


@needs_chromium
async def test_fifty_calls_are_labelled_by_keys_alone_and_each_line_says_what_became_of_it(tmp_path, store):
    await store.append([_request(number) for number in reversed(range(COUNT))])
    async with inspector(tmp_path) as address, browser(tmp_path / "profile") as page:
        await page.open(address, width=1280)
        await becomes(page, ROWS, COUNT)
        await _is_said_well(page)
        await press(page, "j")
        await becomes(page, "!!document.querySelector('#detail .actions')")
        await _is_said_well(page)
        for number in range(COUNT):
            await press(page, "r" if number % 3 else "w")

        async def labelled() -> dict[str, bool]:
            return {each.request_id: each.is_right async for each in store.scan(LabelRecord)}

        async def are_all() -> bool:
            return len(await labelled()) == COUNT

        await holds(are_all, 60)
        assert await labelled() == {f"r{number}": number % 3 > 0 for number in range(COUNT)}
        said = await page.value("[...document.querySelectorAll('#rows li')].map(e => e.getAttribute('aria-label'))")
        assert said[0].startswith("tool_0, llama, hermes, score 0.97, next turn unknown, labelled wrong")
        assert said[1].startswith("stayed text: tool_1, llama, hermes, score 0.85")
        order = await _tabbed(page)
        ways = ["rollout", "period", "pause", "help", "filter", "decision:refused", "reason:low_confidence"]
        assert [each for each in order if each in ways] == ways
        assert order.index("label:none") < order.index("rows") < order.index("right r") < order.index("curl c")
        for key in ("?", "t"):
            await press(page, key) if key == "?" else await _press_in_list(page, key)
            await becomes(page, "document.querySelector('#dialog').open")
            await _is_said_well(page)
            assert await page.value("document.querySelector('#dialog').contains(document.activeElement)")
            await page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", windowsVirtualKeyCode=27)
            await page.call("Input.dispatchKeyEvent", type="keyUp", key="Escape", windowsVirtualKeyCode=27)
            await becomes(page, "document.querySelector('#dialog').open", wanted=False)


async def _press_in_list(page: Page, key: str) -> None:
    await page.value("document.querySelector('#rows').focus()")
    await press(page, key)


async def _is_said_well(page: Page) -> None:
    """Everything that can be used has a name; what a name refers to is there, and only once."""
    nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    told = [
        (_word(node, "role"), _word(node, "name"), node.get("properties", [])) for node in nodes if not node["ignored"]
    ]
    assert [role for role, name, _ in told if role in WIDGETS | {"dialog"} and not name] == []
    options = [name for role, name, _ in told if role == "option"]
    assert len(options) == len([name for name in options if len(name) > 1])
    assert any(role == "listbox" and "newest first" in name for role, name, _ in told) or any(
        role == "dialog" for role, _, _ in told
    )
    assert await page.value(IDS) == 0


def _word(node: dict[str, Any], of: str) -> str:
    return str(node.get(of, {}).get("value", "")).strip()


async def _tabbed(page: Page) -> list[str]:
    """Where the focus goes, from the beginning until it leaves the page."""
    await page.value("(() => { const head = document.querySelector('h1'); head.tabIndex = -1; head.focus(); })()")
    order: list[str] = []
    for _ in range(60):
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        await page.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", windowsVirtualKeyCode=9)
        at = await page.value(ACTIVE)
        if not at or (order and at == order[0]):
            break
        assert await page.value(SEEN), at
        order.append(at)
    return order


PAIRS = (
    *(
        (ink, paper)
        for ink in ("ink", "soft", "accent", "good", "bad", "warn", "would")
        for paper in ("paper", "panel")
    ),
    *((ink, "chosen") for ink in ("ink", "good", "bad", "would", "soft")),
    ("mark-ink", "mark"),
    ("paper", "accent"),
    ("paper", "ink"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_written_can_be_told_from_what_it_stands_on(scheme):
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        for part in _text().split("@media (prefers-color-scheme")[:2]
    )
    colours = light | (dark if scheme == "dark" else {})
    faint = {
        f"{ink} on {paper}": round(_contrast(colours[ink], colours[paper]), 2)
        for ink, paper in PAIRS
        if _contrast(colours[ink], colours[paper]) < 4.5
    }
    assert faint == {}


def _text() -> str:
    return (APP / "page.css").read_text(encoding="utf-8")


def _contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
