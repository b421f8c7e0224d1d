"""The inspector in a real browser, beside a real gateway: what a person sees, does, and cannot be made to do."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.core.records import CallRecord, LabelRecord, RequestRecord
from gateway.rollout.codec import STATE_KEY, state_of
from gateway.state.sqlite import SqliteStore
from tests.bench import records
from tests.support.browser import (
    WEATHER,
    ask,
    becomes,
    browser,
    environ,
    holds,
    inspected,
    inspector,
    needs_chromium,
    press,
    printed,
    running_process,
)
from tests.support.processes import free_ports

ROWS = "document.querySelectorAll('#rows li').length"

LIVE = "document.querySelector('#live').textContent"

NEXT_OF = """
[...document.querySelectorAll('#rows li')].slice(0, 2).map(
  line => line.querySelector('.dialect').nextSibling.nextSibling.textContent)
"""

DETAIL = "document.querySelector('#detail').textContent"

TEXTS = "[...document.querySelectorAll('#rows li')].map(line => line.getAttribute('aria-label')).join('|')"

AWAY = "document.querySelector('#away').textContent"

FIXTURE = """
(async () => {
  const found = await (await fetch('/api/rows?filter=decision:delivered')).json();
  return (await fetch(`/api/rows/${found.rows[0].id}/fixture`)).text();
})()
"""

SHOWN = "document.querySelector('#detail').dataset.id === document.querySelector('[aria-selected=true]')?.dataset.id"

REFUSED = """
(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch (error) { return error.name; } })()
"""

FRAMED = """
(home => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.onload = () => { try { done(frame.contentDocument?.title ?? 'none'); } catch { done('none'); } };
  frame.src = home;
  document.body.append(frame);
}))
"""


async def _ask_on(gateway: str) -> None:
    """A question, and the next turn with what the tool said."""
    question = "What is the weather in Oslo?"
    answer = (await ask(gateway, "demo-xml", question))["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "18 degrees"}
    await ask(gateway, "demo-xml", messages=[{"role": "user", "content": question}, answer, result])


@needs_chromium
async def test_an_answer_is_on_the_page_with_before_and_after_right_after_it_came(tmp_path):
    async with inspected(tmp_path) as running, browser(tmp_path / "profile") as page:
        await page.open(running.address, width=1280)
        assert await page.value("location.search") == ""
        await becomes(page, "!document.querySelector('#empty').hidden")
        took = []
        for number in range(1, 4):
            await ask(running.gateway, "demo-xml", f"What is the weather in Paris? ({number})")
            asked = time.monotonic()
            await becomes(page, ROWS, number)
            took.append(time.monotonic() - asked)
        assert min(took) < 1.5, "on a machine that has something else to do one of them may be late"
        await press(page, "j")
        await becomes(page, f"{DETAIL}.includes('get_weather')")
        told = await page.value(DETAIL)
        assert "<get_weather>" in told
        assert '"city": "Paris"' in told
        assert "0.97" in told
        assert await page.value("document.querySelector('mark').textContent.startsWith('<get_weather>')")
        await _ask_on(running.gateway)
        await becomes(page, NEXT_OF, ["…", "accepted"])
        await press(page, " ")
        await ask(running.gateway, "demo-xml", "And in Rome?")
        await becomes(page, LIVE, "paused, 1 new")
        assert await page.value(ROWS) == 5
        await press(page, " ")
        await becomes(page, ROWS, 6)
        await page.value("document.querySelector('#rollout').click()")
        assert "No decision has been taken yet" in await page.value("document.querySelector('#dialog').textContent")
        await page.value("document.querySelector('#dialog').close()")
        await page.value("document.querySelectorAll('#figures button')[2].click()")
        await becomes(page, "document.querySelector('#empty').textContent", "No answer matches this filter.")
        assert await page.value("location.search") == "?filter=decision%3Arefused"
        assert page.complaints == []
        assert all(url.startswith((running.home, "about:")) for url in page.requests)


@needs_chromium
@pytest.mark.long
async def test_what_is_done_by_keys_is_in_the_report_the_replay_and_the_store(tmp_path):
    async with inspected(tmp_path) as running, browser(tmp_path / "profile") as page:
        for model in ("demo-xml", "demo-hermes", "demo-json", "demo-broken"):
            await ask(running.gateway, model)
        await page.open(running.address, width=1024, dark=True)
        await becomes(page, ROWS, 4)
        await press(page, "j")
        await becomes(page, f"{DETAIL}.length > 100")
        for verdict in "wrwr":
            await press(page, verdict)
            await asyncio.sleep(0.1)
        store = SqliteStore(tmp_path / "toolgate.db")

        async def labels() -> list[LabelRecord]:
            return [record async for record in store.scan(LabelRecord)]

        async def has_four() -> bool:
            return len(await labels()) == 4

        await holds(has_four)
        assert [label.is_right for label in await labels()] == [False, True, False, True]
        report = await _run("report", "--json", "--days", "1", folder=tmp_path)
        assert json.loads(report)["review"]["labelled"] == 4
        fixture = await page.value(FIXTURE)
        (tmp_path / "fixture.jsonl").write_text(fixture)
        assert "1 answers read, 0 differences" in await _run("replay", str(tmp_path / "fixture.jsonl"), folder=tmp_path)
        headers = "{'Content-Type': 'application/json', 'X-Toolgate-Inspector': '1'}"
        body = json.dumps({"strategy": "recovery", "dialect": "generic_xml", "off": True, "reason": "tested"})
        status = await page.value(
            f"fetch('/api/rollout/slice', {{method: 'POST', headers: {headers}, body: '{body}'}}).then(r => r.status)"
        )
        assert status == 200
        await becomes(page, "document.querySelector('#alarms').textContent.includes('recovery/generic_xml')")
        state = state_of((await store.get(STATE_KEY))[STATE_KEY])
        assert state is not None
        assert state.slices_off == ("recovery/generic_xml",)

        async def is_text() -> bool:
            answer = await ask(running.gateway, "demo-xml")
            return "tool_calls" not in answer["choices"][0]["message"]

        await holds(is_text, 10)
        await store.close()


@needs_chromium
@pytest.mark.long
async def test_a_slice_is_off_in_all_workers_within_a_second(tmp_path):
    async with inspected(tmp_path, GATEWAY_WORKERS="2") as running, browser(tmp_path / "profile") as page:
        await page.open(running.address)
        headers = "{'Content-Type': 'application/json', 'X-Toolgate-Inspector': '1'}"
        took = []
        for is_off in (True, False, True, False):
            body = {"strategy": "recovery", "dialect": "generic_xml", "off": is_off, "reason": "tested"}
            status = await page.value(
                f"fetch('/api/rollout/slice', {{method: 'POST', headers: {headers}, body: '{json.dumps(body)}'}})"
                ".then(answer => answer.status)"
            )
            assert status == 200
            decided = time.monotonic()
            wanted = {is_off}

            async def are_all(wanted: set[bool] = wanted) -> bool:
                """Each request comes on a connection of its own, so that both workers have some of sixteen."""
                answers = await asyncio.gather(*(ask(running.gateway, "demo-xml") for _ in range(16)))
                return {"tool_calls" not in answer["choices"][0]["message"] for answer in answers} == wanted

            await holds(are_all)
            took.append(time.monotonic() - decided)
        assert min(took) < 1.0, took


@needs_chromium
async def test_the_gateway_brings_its_inspector_with_it_and_takes_it_along(tmp_path):
    (port,) = free_ports(1)
    settings = environ(tmp_path, GATEWAY_PORT=str(port), LOG_FORMAT="json")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:

        async def status() -> int:
            try:
                async with session.get(page_home(address) + "/app/main.js") as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

        async def is_open() -> bool:
            return await status() == 401

        async with running_process("serve", "--open-inspector", environ=settings) as process:
            address = await printed(process, rb"Inspector: (\S+)")
            await holds(is_open)
            async with session.get(address) as answer:
                assert "Toolgate" in await answer.text()
            assert await status() == 200
        # Somebody else may have its port by now, and nobody its key.
        assert await status() != 200


async def _run(*arguments: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *arguments),
        env=environ(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return out.decode()


HOSTILE = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "</pre><iframe src='https://evil.test'></iframe>",
    "javascript:document.title='owned'",
    "\u202egnihtyna\u202c \u2066x\u2069 \x1b]8;;https://evil.test\x07link\x1b[2J",
    "]]><!--<svg/onload=document.title='owned'>",
    "{{constructor.constructor('document.title=1')()}}",
    'data: x\n\nevent: row\ndata: {"id": "forged"}\n\n',
    "\x00\u2028\u2029\ufeff\u200b",
    "<style>*{display:none}</style><link rel=stylesheet href=//evil.test>",
]


def _hostile(number: int) -> RequestRecord:
    text = HOSTILE[number % len(HOSTILE)] + ("A" * (1 << 20) if number % 100 == 99 else "")
    call = CallRecord(
        number=0,
        dialect=HOSTILE[number % 7][:60],
        tool=HOSTILE[number % len(HOSTILE)],
        score=85,
        decision="refused",
        stage="known_tool",
        reason="low_confidence",
        reasons=(text[:200], "inner_quotes -7"),
        sentence=text[:300],
        setting=HOSTILE[number % 3],
        meant=True,
        before=text,
        span=(0, 10),
    )
    name = HOSTILE[number % len(HOSTILE)][:40]
    return RequestRecord(
        id=f"{name}/{number}",
        at=time.time() - number,
        key="k",
        model=name,
        upstream=name,
        tools=1,
        selected=name,
        notes=(name,),
        calls=(call,),
        answer_text=text,
    )


@needs_chromium
@pytest.mark.long
async def test_what_a_model_wrote_is_text_whatever_it_is(tmp_path):
    store = SqliteStore(tmp_path / "toolgate.db")
    await store.open()
    await store.append([_hostile(number) for number in range(300)])
    await store.close()
    async with inspector(tmp_path) as address, browser(tmp_path / "profile") as page:
        await page.open(address, width=1280)
        await becomes(page, ROWS, 100)
        seen = set()
        for _ in range(12):
            await press(page, "j")
            await becomes(page, SHOWN)
            seen.add(await page.value("document.querySelector('#detail pre')?.textContent.slice(0, 60)"))
        await page.value("document.querySelector('#models').open = true")
        await page.value("import('/app/dom.js').then(dom => dom.toast(String.fromCharCode(27) + '<b>x</b>'))")
        assert len(seen) >= 8
        assert any("U+202E" in (text or "") for text in seen)
        assert any("␛" in (text or "") for text in seen)
        assert any("<script>" in (text or "") for text in seen)
        assert await page.value("document.title") == "Toolgate: what became of each answer"
        assert (
            await page.value(
                "document.querySelectorAll('iframe, img, svg, style, #rows script, #detail script').length"
            )
            == 0
        )
        assert await page.value("document.querySelectorAll('#detail pre').length > 0")
        assert all(url.startswith(page_home(address)) for url in page.requests if not url.startswith("about:"))
        assert await page.value(REFUSED) == "TypeError"


def page_home(address: str) -> str:
    return address.partition("/?")[0]


@needs_chromium
def test_no_file_of_the_page_makes_elements_of_text():
    folder = Path(__file__).parents[2] / "gateway" / "inspector" / "app"
    for path in folder.iterdir():
        text = path.read_text()
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ):
            assert way not in text, (path.name, way)
        if path.suffix == ".html":
            assert "style=" not in text
            assert "onclick" not in text


ATTACK = """
(async (home, other) => {
  const tried = async (url, options) => {
    try { const answer = await fetch(url, options); return answer.type === 'opaque' ? 'opaque' : await answer.text(); }
    catch (error) { return 'refused'; }
  };
  const body = JSON.stringify({id: 'r0', number: 0, verdict: 'wrong'});
  const told = [];
  for (const host of [home, other]) {
    told.push(await tried(host + '/api/rows', {credentials: 'include'}));
    told.push(await tried(host + '/api/label', {method: 'POST', body, credentials: 'include', mode: 'no-cors'}));
    told.push(await tried(host + '/api/label', {method: 'POST', body, credentials: 'include',
      headers: {'Content-Type': 'application/json', 'X-Toolgate-Inspector': '1'}}));
    told.push(await tried(host + '/app/main.js', {mode: 'no-cors', credentials: 'include'}));
  }
  return told;
})
"""


async def _strange_page(_: web.Request) -> web.Response:
    return web.Response(text="<title>stranger</title>", content_type="text/html")


@needs_chromium
async def test_a_page_of_another_port_or_name_gets_nothing_and_changes_nothing(tmp_path):
    store = SqliteStore(tmp_path / "toolgate.db")
    await store.open()
    call = CallRecord(number=0, dialect="hermes", tool="a_secret_tool", score=97, decision="delivered", stage="sent")
    await store.append(
        [RequestRecord(id="r0", at=time.time(), key="k", model="m", upstream="u", tools=1, calls=(call,))]
    )
    app = web.Application()
    app.router.add_get("/", _strange_page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stranger = f"http://127.0.0.1:{runner.addresses[0][1]}"
    rules = "--host-resolver-rules=MAP rebound.test 127.0.0.1"
    try:
        async with inspector(tmp_path) as address, browser(tmp_path / "profile", rules) as page:
            home = page_home(address)
            port = home.rpartition(":")[2]
            await page.open(address)
            await becomes(page, ROWS, 1)
            await page.open(stranger)
            told = await page.value(f"{ATTACK}({json.dumps(home)}, 'http://rebound.test:{port}')")
            assert set(told) <= {"refused", "opaque"}
            assert [record async for record in store.scan(LabelRecord)] == []
            await page.open(stranger)
            assert await page.value(f"{FRAMED}({json.dumps(home)})") in ("none", "")
            await page.open(f"http://rebound.test:{port}/")
            assert json.loads(await page.value("document.body.textContent"))["error"]["code"] == "wrong_host"
            await page.call("Network.clearBrowserCookies")
            await page.open(address)  # whose key was used
            assert json.loads(await page.value("document.body.textContent"))["error"]["code"] == "no_key"
    finally:
        await runner.cleanup()
        await store.close()


@needs_chromium
@pytest.mark.long
async def test_a_used_key_and_a_cookie_of_an_earlier_start_are_refused_in_a_browser(tmp_path):
    store = SqliteStore(tmp_path / "toolgate.db")
    await store.open()
    await store.close()
    port = str(free_ports(1)[0])
    async with browser(tmp_path / "profile") as page:
        async with inspector(tmp_path, "--port", port) as address:
            home = page_home(address)
            await page.open(address)
            await becomes(page, "document.title", "Toolgate: what became of each answer")
            async with aiohttp.ClientSession() as other, other.get(address) as answer:
                assert answer.status == 401
        await becomes(page, f"{AWAY}.startsWith('The inspector does not answer')")
        assert await page.value("document.querySelector('#live').textContent") == "not live"
        async with inspector(tmp_path, "--port", port) as again:
            await becomes(page, f"{AWAY}.startsWith('The inspector was started anew')")
            await page.open(home + "/")
            assert "no_key" in await page.value("document.body.textContent")
            await page.open(again)
            await becomes(page, "document.title", "Toolgate: what became of each answer")


@needs_chromium
async def test_a_page_that_may_only_read_leaves_the_file_as_it_is(tmp_path):
    file = tmp_path / "toolgate.db"
    store = SqliteStore(file)
    await store.open()
    await store.append([_hostile(number) for number in range(5)])
    await store.close()
    before = file.stat().st_mtime_ns
    async with inspector(tmp_path, "--read-only") as address, browser(tmp_path / "profile") as page:
        await page.open(address)
        await becomes(page, ROWS, 5)
        for key in "jrwjsj":
            await press(page, key)
            await asyncio.sleep(0.1)
        assert await page.value("document.querySelector('.actions button').disabled")
        await asyncio.sleep(1)
    assert file.stat().st_mtime_ns == before


@needs_chromium
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_hundred_thousand_answers_are_looked_through_in_half_a_second(tmp_path):
    await records.make(tmp_path / "store.db", 100_000)
    found = await asyncio.to_thread(records.measured, tmp_path / "store.db")
    first = found["cpu_ms"].pop("")
    assert first < 300
    assert max(found["cpu_ms"].values()) < 500, found
    assert max(found["figures_ms"].values()) < 1000, found
    assert found["detail_ms"] < 100
    assert found["mib"] < 60


# --- The inspector beside a gateway that is busy: what it costs the gateway, and that a page misses nothing


PER_SECOND = 200

SECONDS = 6

ROWS_A_VISIT = 250

TICK = os.sysconf("SC_CLK_TCK")


async def _load(url: str) -> None:
    """So many requests, each at its time; one that meets a worker that leaves may fail."""
    body = {"model": "demo-xml", "messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": [WEATHER]}
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0)) as session:

        async def one() -> None:
            with suppress(aiohttp.ClientError):
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    await answer.read()

        async with asyncio.TaskGroup() as tasks:
            for number in range(PER_SECOND * SECONDS):
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - loop.time()))
                tasks.create_task(one())


def _spent(pid: int) -> float:
    """CPU seconds of a process and of those that it has started, the ended ones too."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK + sum(_spent(each) for each in _children(pid))


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(each) for each in listed.split()]


async def _rows(session: aiohttp.ClientSession, home: str, cursor: str) -> AsyncGenerator[tuple[str, str], None]:
    """Cursor and id of each row of one visit."""
    async with session.get(f"{home}/api/live", headers={"Last-Event-ID": cursor}) as answer:
        answer.raise_for_status()
        place = event = ""
        async for line in answer.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                place = value
            elif name == "event":
                event = value
            elif name == "data" and event in ("row", "outcome"):
                yield place, json.loads(value)["id"] if event == "row" else ""


async def _watch(session: aiohttp.ClientSession, home: str, seen: list[str]) -> None:
    """Read on for ever, and come anew again and again."""
    async with session.get(f"{home}/api/state") as answer:
        cursor = (await answer.json())["cursor"]
    while True:
        count = 0
        async with aclosing(_rows(session, home, cursor)) as rows:
            async for place, request_id in rows:
                cursor = place
                seen += [request_id] * bool(request_id)
                count += 1
                if count == ROWS_A_VISIT:
                    break


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_page_beside_two_busy_workers_misses_no_row_and_costs_them_nothing(tmp_path):
    (port,) = free_ports(1)
    settings = environ(tmp_path, GATEWAY_PORT=str(port), GATEWAY_WORKERS="2", LOG_FORMAT="json", LOG_LEVEL="error")
    url, seen = f"http://127.0.0.1:{port}", list[str]()
    async with running_process("serve", environ=settings) as process:
        await printed(process, rb"listens on (\S+)")
        await _load(url)  # both have begun
        costs = []
        before = _spent(process.pid)
        await _load(url)
        costs.append(_spent(process.pid) - before)
        async with (
            inspector(tmp_path) as address,
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        ):
            home = address.partition("/?")[0]
            async with session.get(address) as answer:
                assert answer.status == 200
            store = SqliteStore(tmp_path / "toolgate.db", timeout_s=5)

            async def kept() -> list[str]:
                return [each.id async for each in store.scan(RequestRecord)]

            async def is_quiet() -> bool:
                count = len(await kept())
                await asyncio.sleep(1)
                return len(await kept()) == count

            await holds(is_quiet, 30)
            earlier = set(await kept())
            watching = asyncio.create_task(_watch(session, home, seen))
            await asyncio.sleep(1)
            before = _spent(process.pid)
            await _load(url)
            costs.append(_spent(process.pid) - before)
            process.send_signal(signal.SIGUSR2)  # both are replaced, one after the other
            await _load(url)
            await holds(is_quiet, 30)

            async def has_all() -> bool:
                return len(seen) >= len(set(await kept()) - earlier)

            with suppress(TimeoutError):
                await holds(has_all, 20)
            assert not watching.done(), watching
            watching.cancel()
            await asyncio.wait([watching])
            new = set(await kept()) - earlier
            await store.close()
    assert len(seen) == len(set(seen))
    assert (len(set(seen) - new), len(new - set(seen))) == (0, 0), "rows of nobody, rows that were missed"
    assert len(new) > PER_SECOND * SECONDS
    print(
        f"CPU seconds of the gateway for {PER_SECOND * SECONDS} requests: without {costs[0]:.2f}, with {costs[1]:.2f}"
    )
    assert costs[1] < costs[0] * 1.25, costs
