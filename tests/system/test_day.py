"""A day in the life: from the dry run to a model that goes bad and back, with nothing but what the screen says.

nginx, Prometheus and Alertmanager are real and configured as shipped, the gateway has two workers. Every command that
is run here, but for the first report, is one that a screen, an alert or the runbook has named.
"""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from attrs import define, field

from gateway.core.records import RequestRecord
from gateway.state.opening import open_store
from tests.deploy.proxy import HAS_NGINX, Proxy, nginx
from tests.support.client import TOOLS, Answer, ask, chat
from tests.support.faulty_upstream import DONE, FaultyUpstream, Received, event, stream, text
from tests.support.processes import (
    GRAFANA,
    Program,
    Prometheus,
    alertmanager,
    free_port,
    needs_prometheus,
    prometheus,
    receiver,
    until_received,
)

pytestmark = [needs_prometheus, pytest.mark.skipif(not HAS_NGINX, reason="needs nginx")]

WELL, TAGGED = "well", "tagged"
"""Models that are given native tools; both write calls as text."""
KEY = "the-clients-key"
HERMES = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>'
BROKEN = HERMES.replace("a.py", "<path>a.py")
TAGS = "<read_file>\n<path>a.py</path>\n</read_file>"
SLICE = "recovery/hermes"
SETTINGS = f"""\
GATEWAY_WORKERS=2
GATEWAY_API_KEYS={KEY}
TRANSFORM_MODE=dry_run
STRATEGY_RULES=*=recovery
CANARY_STEPS=50,95
CANARY_STEP_MIN_SECONDS=1
CANARY_STEP_MIN_REQUESTS=40
CANARY_STEP_MIN_KEYS=10
LOG_FORMAT=json
TRANSFORM_BUDGET_MS=5000
"""


@define
class Models:
    """Two models that write calls as text, each in a form of its own; one of them goes bad."""

    goes_bad: bool = False

    async def script(self, connection: Any, received: Received) -> None:
        said = TAGS if received.json["model"] == TAGGED else BROKEN if self.goes_bad else HERMES
        if any(message["role"] == "assistant" for message in received.json["messages"]):
            said = "That was it."
        await stream(text("I will look.\n"), text(said), event(finish="stop"), DONE)(connection, received)


@define
class Day:
    """The gateway's clients and its operator."""

    client: aiohttp.ClientSession
    proxy: Proxy
    program: Program
    environ: dict[str, str]
    told: set[str] = field(factory=set)
    """Requests that said how a call fared."""
    _numbers: Any = field(factory=count)

    async def asked(self, model: str, requests: int) -> list[Answer]:
        """Answers to as many new conversations, eight at a time."""
        places, trusted = asyncio.Semaphore(8), self.proxy.trusted()

        async def one(number: int) -> Answer:
            messages: list[dict[str, Any]] = [{"role": "user", "content": f"Read a.py, {number}"}]
            async with places:
                answer = await turn(messages)
                if call := called(answer):
                    messages += [
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": call["id"], "content": result_of(call)},
                    ]
                    self.told.add((await turn(messages)).headers["X-Request-Id"])
            return answer

        async def turn(messages: list[dict[str, Any]]) -> Answer:
            headers = {"Authorization": f"Bearer {KEY}"}
            body = chat(model=model, tools=TOOLS, messages=messages)
            answer = await ask(self.client, self.proxy.url, body, headers=headers, ssl=trusted)
            assert answer.status == 200, answer.body
            assert answer.is_done, answer.body
            return answer

        return await asyncio.gather(*(one(next(self._numbers)) for _ in range(requests)))

    async def run(self, line: str, *, code: int = 0) -> str:
        """What a command line prints, as somebody types it or copies it; nobody is there to be asked."""
        program, *options = shlex.split(line)
        assert program == "toolgate", line
        asks = options[:1] == ["rollout"] and "--reason" in options
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *options, *(["--yes"] if asks else [])),
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == code, (line, said.decode())
        return said.decode()

    async def counts(self, name: str, least: int) -> None:
        """Wait until the judge has counted so many: workers tell it of what they served once a second or so."""
        async with asyncio.timeout(30):
            while json.loads(await self.run("toolgate rollout status --json"))["counts"][name] < least:  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def a_day_passes(self) -> None:
        """The hour that was recorded has been the same in each of the 24 before."""
        store = open_store(self.environ["STORE_URL"], prefix="toolgate:", timeout_ms=5000)
        await store.open()
        try:
            seen = [record async for record in store.scan(RequestRecord)]
            for hour in range(1, 25):
                past = [msgspec.structs.replace(one, id=f"{one.id}-{hour}", at=one.at - 3600 * hour) for one in seen]
                await store.append(past)
        finally:
            await store.close()


def called(answer: Answer) -> dict[str, Any] | None:
    """The one call of an answer, as a client keeps it."""
    pieces = [
        piece
        for chunk in answer.chunks
        for choice in chunk["choices"]
        for piece in choice["delta"].get("tool_calls") or ()
    ]
    if not pieces:
        return None
    arguments = "".join(piece["function"].get("arguments") or "" for piece in pieces)
    return {**pieces[0], "function": {"name": pieces[0]["function"]["name"], "arguments": arguments}}


def result_of(call: dict[str, Any]) -> str:
    """What the client's tool says; it takes no markup for a path."""
    if "<" in json.loads(call["function"]["arguments"])["path"]:
        return "Error: invalid arguments for tool read_file: path is not a path"
    return "import os"


def is_call(answer: Answer) -> bool:
    return called(answer) is not None


def arms(answers: list[Answer]) -> set[str]:
    return {answer.headers["X-Toolgate-Arm"] for answer in answers}


def command_in(said: str, beginning: str) -> str:
    """The command that begins so, as a screen names it."""
    flat = re.sub(r"\s+", " ", said)
    found = re.search(rf'{beginning}(?: --reason "[^"]+")?', flat)
    assert found is not None, said
    return found[0]


@pytest.fixture
async def day(upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[Day]:
    settings = tmp_path / "toolgate.env"
    settings.write_text(f"{SETTINGS}UPSTREAM_URL={upstream.url}\n")
    async with AsyncExitStack() as stack:
        program = await stack.enter_async_context(Program(tmp_path, GATEWAY_ENV_FILE=str(settings)))
        await program.serving()
        faster = {"rate=10r/s": "rate=1000r/s"}  # one address is all the clients that there are
        proxy = await stack.enter_async_context(nginx(tmp_path, program.url, changes=faster))
        environ = {
            "PATH": os.environ["PATH"],
            "GATEWAY_ENV_FILE": str(settings),
            "STORE_URL": f"sqlite:///{tmp_path}/store.db",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        yield Day(client, proxy, program, environ)


async def test_a_day_in_the_life(
    day: Day, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    models = Models()
    upstream.script = models.script
    port = free_port()
    async with (
        receiver() as (received, receiver_url),
        alertmanager(tmp_path, port, receiver_url),
        prometheus(tmp_path, client, alertmanager=port, targets=str(day.program.targets_file)) as asked,
    ):
        await the_dry_run(day)
        await the_canary(day, asked)
        bad = await the_model_goes_bad(day, models, asked)
        alert = await the_alert(await until_received(received))
        status = await the_search(day, alert, bad)
        models.goes_bad = False
        await the_return(day, asked, status, f"http://127.0.0.1:{port}")


async def the_dry_run(day: Day) -> None:
    """Nothing is changed yet; after an hour it is too early to judge, after a day it is not."""
    answers = await day.asked(WELL, 40) + await day.asked(TAGGED, 20)
    assert arms(answers) == {"dry_run"}
    assert not any(map(is_call, answers))
    early = await day.run("toolgate report", code=4)
    assert "not enough data" in early
    assert "The records cover too few hours" in early
    assert "versions or settings were at work" not in early, "both workers have the operator's settings"
    await day.a_day_passes()


async def the_canary(day: Day, asked: Prometheus) -> None:
    """The report names the command, and half of the conversations are live."""
    said = await day.run("toolgate report --days 2")
    assert "Begin the canary with 50 % of the conversations" in said
    await day.counts("dry_run_requests", 60)
    changed = await day.run(command_in(said, "toolgate rollout promote"))
    assert "dry_run -> canary at 50 %" in changed
    await asked.until('min(toolgate_rollout_state{job="toolgate",state="canary"}) == 1')
    answers = await day.asked(WELL, 30)
    assert arms(answers) == {"live", "control"}
    assert {is_call(answer) for answer in answers if arms([answer]) == {"live"}} == {True}


async def the_model_goes_bad(day: Day, models: Models, asked: Prometheus) -> set[str]:
    """Until its slice is off in every worker; the ids of the requests that it was live for."""
    models.goes_bad = True
    before = set(day.told)
    off = 'toolgate_rollout_slice_off{strategy="recovery",dialect="hermes"}'
    async with asyncio.timeout(60):
        while await asked.value(f"count({off} == 1)") < 2:
            await day.asked(WELL, 16)
    assert all(map(is_call, (one for one in await day.asked(TAGGED, 12) if arms([one]) == {"live"})))
    return day.told - before


async def the_alert(message: tuple[str, Any]) -> dict[str, Any]:
    path, document = message
    (alert,) = document["alerts"]
    assert (path, alert["status"], alert["labels"]["alertname"]) == ("/tickets", "firing", "ToolgateSliceOff")
    assert f"{alert['labels']['strategy']}/{alert['labels']['dialect']}" == SLICE
    return dict(alert)


async def the_search(day: Day, alert: dict[str, Any], bad: set[str]) -> str:
    """The alert leads to the status, that and the report to the requests."""
    status = await day.run(command_in(alert["annotations"]["description"], "toolgate rollout status"))
    assert SLICE in status
    named = set(re.findall(r"\b[0-9a-f-]{16,}\b", status))
    assert named
    assert named <= bad
    report = await day.run("toolgate report --days 2")
    assert f"{SLICE} is switched off" in report
    assert named & set(re.findall(r"\b[0-9a-f-]{16,}\b", report))
    runbook = (GRAFANA / "RUNBOOK.md").read_text("utf-8")
    assert alert["annotations"]["runbook_url"] == "grafana/RUNBOOK.md#toolgatesliceoff"
    assert "toolgate rollout slice STRATEGY/DIALECT on" in runbook.split("## ToolgateSliceOff")[1].split("## ")[0]
    return status


async def the_return(day: Day, asked: Prometheus, status: str, alertmanager_url: str) -> None:
    """The status says how the slice comes back; then calls are calls again, and the alert ends."""
    changed = await day.run(command_in(status, f"toolgate rollout slice {SLICE} on"))
    assert f"{SLICE} on" in changed
    await asked.until("absent(toolgate_rollout_slice_off == 1)")
    # Half of them: of a dozen it may well be none, one time in four thousand.
    answers = await day.asked(WELL, 40)
    live = [one for one in answers if arms([one]) == {"live"}]
    assert live, arms(answers)
    assert all(map(is_call, live))
    async with asyncio.timeout(30):
        while True:
            async with day.client.get(f"{alertmanager_url}/api/v2/alerts", params={"active": "true"}) as response:
                if not [one for one in await response.json() if one["labels"]["alertname"] == "ToolgateSliceOff"]:
                    return
            await asyncio.sleep(0.2)  # Alertmanager tells its receivers only after minutes
