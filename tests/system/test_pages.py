"""A real browser on the machine of a gateway without keys: what pages of strangers can do there, and what listed can.

The scripted model server counts: a request that reaches it would have been paid for. It lets every page read its
answers, as many servers do, so that only the gateway stands between.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.app import Gateway
from tests.support.browser import Page, browser, needs_chromium
from tests.support.client import chat
from tests.support.faulty_upstream import FaultyUpstream, answer_json, completion

StartGateway = Callable[..., Awaitable[Gateway]]

pytestmark = needs_chromium
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
