"""Two gateways as real processes over one real Redis: the rollout as clients and operators meet it."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self, cast

import aiohttp
import pytest
from attrs import define, field, frozen

from gateway.background.tick import Upkeep
from gateway.config.load import load
from gateway.core.records import DecisionRecord, FeedbackRecord, OutcomeRecord, Record, RequestRecord
from gateway.rollout.assignment import InForce, assign
from gateway.rollout.codec import STATE_KEY, encoded
from gateway.rollout.stages import RolloutRules, begun, rolled_back
from gateway.state.opening import open_store
from tests.support.chat import Heard, hear_stream
from tests.support.client import TOOLS, Answer, ask, chat, get
from tests.support.cost import Pulse
from tests.support.faulty_upstream import DONE, STREAM_HEAD, Connection, FaultyUpstream, Received, event, text
from tests.support.processes import Program, until
from tests.support.stores import Gauges, RedisServer, needs_redis

pytestmark = needs_redis

ROOT = Path(__file__).parents[2]
MODEL = "qwen3-coder"
"""Its tools go into the prompt, so that the model server can tell the arms apart."""
CALL = "I will look.\n<read_file>\n<path>a.py</path>\n</read_file>"
SALT = "salt-for-two-processes"
OBEYED_S = 1.0
SLACK_S = 0.5
"""For a machine that has other things to do."""


@define
class Model:
    """A model server that answers well, or cuts what was asked with tools in the prompt."""

    cuts_live: bool = False
    may_end: asyncio.Event = field(factory=asyncio.Event)
    waiting: int = 0

    async def script(self, connection: Connection, received: Received) -> None:
        body = received.json
        is_live = "tools" not in body
        await connection.send(STREAM_HEAD, text(CALL[:20]))
        if "long" in json.dumps(body["messages"]):
            self.waiting += 1
            await self.may_end.wait()
        elif self.cuts_live and is_live:
            return
        await connection.send(text(CALL[20:]), event(finish="stop"), DONE)


@frozen(kw_only=True)
class Seen:
    """One answer as a client got it."""

    began: float
    program: int
    conversation: str
    arm: str
    answer: Answer

    @property
    def heard(self) -> Heard:
        return hear_stream(self.answer.body)


@define
class Pair:
    """Two gateways, their store, and who asks them."""

    programs: list[Program]
    redis: RedisServer
    model: Model
    client: aiohttp.ClientSession
    environ: dict[str, str]
    env_files: list[Path]
    seen: list[Seen] = field(factory=list)
    faults: list[str] = field(factory=list)
    _numbers: Iterator[int] = field(factory=count)

    async def ask(self, program: int, conversation: str, **fields: Any) -> Seen:
        """One streamed request of a conversation."""
        began = time.time()
        body = {"messages": [{"role": "user", "content": conversation}], "tools": TOOLS, **fields}
        answer = await ask(
            self.client, self.programs[program].url, chat(model=MODEL, **body), headers={"X-Session": conversation}
        )
        assert answer.status == 200, answer.body
        return Seen(
            began=began,
            program=program,
            conversation=conversation,
            arm=answer.headers["X-Toolgate-Arm"],
            answer=answer,
        )

    async def arm(self, program: int, conversation: str = "who") -> str:
        return (await self.ask(program, conversation)).arm

    async def until_arms(self, wanted: set[str], seconds: float = OBEYED_S + SLACK_S) -> None:
        """Each of the gateways puts conversations into these arms, and no others, within this time."""
        async with Pulse() as pulse:
            while True:
                asked = [self.ask(program, f"probe {number}") for program in (0, 1) for number in range(16)]
                seen = await asyncio.gather(*asked)
                arms = [{one.arm for one in seen if one.program == program} for program in (0, 1)]
                if arms == [wanted] * 2:
                    return
                assert pulse.seconds < seconds, (arms, wanted)
                await asyncio.sleep(0.05)

    async def obeyed(self, arms: set[str]) -> None:
        """Whatever the load asks for later than a change may take is in these arms, and both gateways have all of them.

        The second is counted by what passes in this process: the gateways wait for the same processors.
        """
        async with Pulse() as pulse:
            await until(lambda: pulse.seconds >= OBEYED_S, 4 * OBEYED_S)
        over = time.time()

        def late() -> list[Seen]:
            return [seen for seen in self.seen if seen.began > over]

        await until(
            lambda: {(seen.program, seen.arm) for seen in late()} >= {(at, arm) for at in (0, 1) for arm in arms}
        )
        assert {seen.arm for seen in late()} == arms, "it went on for too long"

    @asynccontextmanager
    async def load(self, clients: int = 8, pause_s: float = 0.05) -> AsyncIterator[Self]:
        """New conversations without end, at both gateways."""
        ending = asyncio.Event()

        async def one(program: int) -> None:
            while not ending.is_set():
                seen = await self.ask(program, f"conversation {next(self._numbers)}")
                self.seen.append(seen)
                is_cut = seen.arm == "live" and seen.answer.error == "upstream_truncated"
                if not is_cut and not seen.answer.is_done:
                    self.faults.append(f"{seen.arm}: {seen.answer.body[-200:]!r}")
                await asyncio.sleep(pause_s)

        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(one(number % 2))
            try:
                yield self
            finally:
                ending.set()

    async def command(self, *words: str) -> tuple[int, str]:
        """`toolgate rollout` with the settings of the gateways; the exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "rollout", *words),
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **self.environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, (out or err).decode()

    async def status(self) -> dict[str, Any]:
        code, out = await self.command("status", "--json")
        assert code == 0, out
        document: dict[str, Any] = json.loads(out)
        return document

    async def changed(self, *words: str) -> None:
        """A command that changes the rollout; how long both gateways may still take is counted from now on."""
        code, out = await self.command(*words, "--yes")
        assert code == 0, out

    async def records(self, kind: type[Record]) -> list[Any]:
        store = open_store(self.redis.url, prefix="toolgate:", timeout_ms=2000)
        await store.open()
        try:
            return [record async for record in store.scan(kind)]
        finally:
            await store.close()

    async def decisions(self) -> list[str]:
        return [record.decision for record in await self.records(DecisionRecord)]

    def logged(self, name: str) -> list[dict[str, Any]]:
        """Every such line of both."""
        return [line for program in self.programs for line in program.events(name)]

    async def until_recorded(self, kind: type[Record], number: int) -> None:
        """Records are written a moment after the answers."""
        async with asyncio.timeout(10):
            while len(await self.records(kind)) < number:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.05)

    async def until_shown(self, name: str, labels: str, value: float) -> None:
        """The metrics of both show this, within the time for changes."""
        lines = []
        async with Pulse() as pulse:
            while pulse.seconds < OBEYED_S + SLACK_S:
                expositions = [(await get(self.client, f"{program.url}/metrics")).body for program in self.programs]
                lines = [line for each in expositions for line in each.decode().splitlines() if line.startswith(name)]
                if lines.count(f"{name}{{{labels}}} {value}") == len(self.programs):
                    return
                await asyncio.sleep(0.05)
        raise AssertionError(lines)

    async def reject(self, number: int) -> None:
        """Ask one gateway for a call, and tell the other that it was a bad one, where there was any."""
        seen = await self.ask(number % 2, f"turn {number}")
        question = {"role": "user", "content": seen.conversation}
        if not (calls := seen.heard.calls):
            return
        [call] = calls
        made = {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": "{}"}}
        told = [
            question,
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": "Error: Missing value for required parameter 'path'",
            },
        ]
        await self.ask(1 - number % 2, seen.conversation, messages=told)

    async def restart(self, program: int) -> None:
        """A new process in the place of one."""
        one = self.programs[program]
        before = len(one.events("gateway_started"))
        one.signal(signal.SIGTERM)
        assert await one.exit_code() == 0
        await one.__aenter__()
        one.url = (await one.logged("gateway_started", count=before + 1))["url"]

    async def reload(self, *programs: int, **settings: str) -> None:
        for program in programs or (0, 1):
            before = len(self.programs[program].events("reloaded"))
            lines = [f"{name}={value}\n" for name, value in settings.items()]
            self.env_files[program].write_text("".join(lines))
            self.programs[program].signal(signal.SIGHUP)
            await self.programs[program].logged("reloaded", count=before + 1)


Start = Any


@pytest.fixture
async def start(upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a pair under some settings."""
    model = Model()
    upstream.script = model.script
    async with AsyncExitStack() as closing:

        async def started(**settings: str | None) -> Pair:
            redis = await RedisServer(tmp_path).start()
            closing.push_async_callback(redis.close)
            wanted = {
                "STORE_URL": redis.url,
                "STORE_TIMEOUT_MS": "2000",  # a busy machine is not what is tested here
                "UPSTREAM_URL": upstream.url,
                "TRANSFORM_MODE": "canary",
                "CANARY_PERCENT": "50",
                "CANARY_SALT": SALT,
                "CANARY_STICKY_HEADER": "X-Session",
                "ROLLBACK_COOLDOWN_SECONDS": "0",
                "LOG_LEVEL": "info",
                **settings,
            }
            environ = {name: value for name, value in wanted.items() if value is not None}
            programs, files = [], []
            for name in ("one", "two"):
                folder = tmp_path / name
                folder.mkdir()
                files.append(folder / "env")
                files[-1].touch()
                program = Program(folder, **environ, GATEWAY_ENV_FILE=str(files[-1]))
                programs.append(await closing.enter_async_context(program))
            for program in programs:
                await program.serving()
            return Pair(programs, redis, model, client, environ, files)

        yield started


async def test_one_gateway_rolls_back_and_both_obey_within_a_second(start: Start) -> None:
    pair: Pair = await start()
    messages = [{"role": "user", "content": "a long answer"}]
    running = asyncio.ensure_future(pair.ask(1, await live_conversation(pair), messages=messages))
    await until(lambda: pair.model.waiting == 1)
    async with pair.load():
        await until(lambda: {seen.arm for seen in pair.seen} == {"live", "control"})
        await pair.obeyed({"live", "control"})
        assert {seen.arm for seen in pair.seen} == {"live", "control"}
        assert pair.logged("rollout_decided") == []
        pair.model.cuts_live = True
        await until(lambda: pair.logged("rollout_decided"))
        await pair.obeyed({"dry_run"})
    assert pair.faults == []
    [decided] = pair.logged("rollout_decided")
    assert (decided["decision"], decided["reason"], decided["after"]) == ("rollback", "evidence", "rolled_back")
    [record] = await pair.records(DecisionRecord)
    assert (record.decision, record.epoch) == ("rollback", 2)
    assert record.numbers["live_bad"] >= 3
    assert record.numbers["control_bad"] == 0
    bad = {line["request_id"] for line in pair.logged("request_ended") if line["arm"] == "live"}
    assert record.examples
    assert set(record.examples) <= bad
    found = await pair.status()
    assert (found["state"], found["percent"], found["epoch"], found["reason"]) == ("rolled_back", 0, 2, "evidence")
    pair.model.may_end.set()
    kept = await running
    assert kept.arm == "live", "the arm is for the whole of a request"
    assert kept.heard.finish == "tool_calls"


async def live_conversation(pair: Pair) -> str:
    """One that is live."""
    for number in range(100):
        if (await pair.ask(0, f"some {number}")).arm == "live":
            return f"some {number}"
    raise AssertionError("none is live")


async def test_a_rollback_is_latched_over_restarts_until_it_is_resumed_with_a_reason(start: Start) -> None:
    pair: Pair = await start(ROLLBACK_MODE="off")
    live = await live_conversation(pair)
    await pair.changed("rollback", "--reason", "wrong paths")
    await pair.until_arms({"off"})
    for program in (0, 1):
        await pair.restart(program)
        assert await pair.arm(program, live) == "off", "it holds for the very first request"
    found = await pair.status()
    assert (found["state"], found["reason"], found["epoch"]) == ("rolled_back", "wrong paths", 2)
    code, said = await pair.command("resume", "--yes")
    assert (code, "--reason" in said) == (2, True)
    await pair.changed("resume", "--reason", "fixed")
    await pair.until_arms({"live", "control"})
    assert await pair.arm(0, live) == await pair.arm(1, live)
    found = await pair.status()
    assert (found["state"], found["reason"], found["epoch"]) == ("canary", "fixed", 3)
    assert await pair.decisions() == ["rollback", "resume"]
    assert pair.logged("rollout_decided") == [], "who decided was the operator"


async def test_a_rollback_cools_down_before_it_can_be_resumed(start: Start) -> None:
    pair: Pair = await start(ROLLBACK_COOLDOWN_SECONDS="600")
    await pair.changed("rollback")
    code, said = await pair.command("resume", "--reason", "at once", "--yes")
    assert (code, "cools down" in said) == (3, True)
    await pair.until_arms({"dry_run"})


async def test_a_new_configuration_lifts_a_rollback_and_the_judges_limits_do_not(start: Start) -> None:
    pair: Pair = await start()
    await pair.changed("rollback")
    await pair.until_arms({"dry_run"})
    await pair.reload(ROLLBACK_EVIDENCE="100")
    await asyncio.sleep(OBEYED_S)
    assert {await pair.arm(program) for program in (0, 1)} == {"dry_run"}
    await pair.reload(CANARY_PERCENT="100")
    await pair.until_arms({"live"})
    [decided] = pair.logged("rollout_decided")
    assert (decided["decision"], decided["reason"]) == ("resume", "new_configuration")
    found = await pair.status()
    assert (found["state"], found["percent"], found["epoch"]) == ("canary", 100, 3)
    assert await pair.decisions() == ["rollback", "resume"]


async def test_an_operator_promotes_step_by_step(start: Start) -> None:
    pair: Pair = await start(CANARY_PERCENT="1", CANARY_STEPS="1,50", CANARY_HOLDBACK_PERCENT="0")
    code, said = await pair.command("promote", "--yes")
    assert (code, "gate not met" in said) == (3, True)
    await pair.changed("promote", "--force")
    await pair.until_arms({"live", "control"})
    await pair.changed("promote", "--force")
    await pair.until_arms({"live"})
    assert (await pair.status())["state"] == "full"
    await pair.restart(1)
    assert await pair.arm(1) == "live", "a stored step beats CANARY_PERCENT"


async def test_a_good_canary_is_promoted_by_itself(start: Start) -> None:
    pair: Pair = await start(
        TRANSFORM_MODE="dry_run",
        ROLLOUT_AUTO="promote",
        CANARY_STEPS="50,95",
        CANARY_STEP_MIN_SECONDS="1",
        CANARY_STEP_MIN_REQUESTS="20",
        CANARY_STEP_MIN_KEYS="10",
        TRANSFORM_BUDGET_MS="60000",
    )
    async with pair.load(pause_s=0):
        # The upper bound of a share of bad ones comes down to half a point with several hundreds of requests.
        await until(lambda: any(line["epoch"] == 3 for line in pair.logged("rollout_decided")), 60)
    assert pair.faults == []
    taken = [line for line in pair.logged("rollout_decided") if line["decision"] != "hold"]
    assert sorted(line["epoch"] for line in taken) == [2, 3], "one of the two takes each step"
    assert {(line["decision"], line["reason"], line["after"]) for line in taken} == {("promote", "gates_met", "canary")}
    assert {seen.arm for seen in pair.seen} == {"dry_run", "control", "live"}


async def test_the_kill_command_is_obeyed_within_a_second_and_taken_back(start: Start) -> None:
    pair: Pair = await start()
    async with pair.load():
        await until(lambda: len(pair.seen) > 20)
        for words, arms in ((("kill",), {"off"}), (("unkill",), {"live", "control"})):
            await pair.changed(*words)
            await pair.obeyed(arms)
    assert pair.faults == []
    assert await pair.decisions() == ["kill", "unkill"]


async def test_o10_a_share_that_is_raised_only_adds_conversations(start: Start) -> None:
    pair: Pair = await start(CANARY_PERCENT="0")
    names = [f"conversation {number}" for number in range(75)]
    before: set[str] = set()
    shares: dict[int, int] = {}
    for percent in (0, 1, 50, 100):
        await pair.reload(CANARY_PERCENT=str(percent))
        await pair.until_shown("toolgate_rollout_percent", 'kind="effective"', float(percent))
        shares[(await pair.status())["epoch"]] = 100 * percent
        arms = []
        for program in (0, 1):
            seen = [await pair.ask(program, name) for name in names]
            arms.append({each.conversation: each.arm for each in seen})
        assert arms[0] == arms[1], "a conversation has the same arm everywhere"
        live = {name for name, arm in arms[0].items() if arm == "live"}
        assert before <= live, "nobody leaves"
        before = live
    assert len(before) == len(names)
    assert len(shares) == 4
    # What the processes did is what the pure function says, and it can be asked about many more.
    await pair.until_recorded(RequestRecord, 2 * 4 * len(names))
    for record in await pair.records(RequestRecord):
        in_force = InForce(mode="canary", percent=shares[record.epoch])
        assert assign(in_force, SALT.encode(), record.key).arm == record.arm
    for share in shares.values():
        in_force = InForce(mode="canary", percent=share)
        found = [assign(in_force, SALT.encode(), f"key {number}").arm for number in range(10_000)]
        assert abs(found.count("live") - share) <= 100


async def test_outcomes_count_for_the_arm_that_answered_whoever_hears_of_them(start: Start) -> None:
    """Every answer is whole, so that only what the clients report can speak against the arm."""
    pair: Pair = await start()
    async with asyncio.timeout(60):
        number = 0
        while not pair.logged("rollout_decided"):
            await asyncio.gather(*(pair.reject(number + more) for more in range(8)))
            number += 8
    [decided] = pair.logged("rollout_decided")
    assert (decided["decision"], decided["reason"]) == ("rollback", "evidence")
    assert decided["numbers"]["live_bad"] >= 3
    assert decided["numbers"]["control_bad"] == 0
    await pair.until_recorded(OutcomeRecord, 1)
    outcomes = await pair.records(OutcomeRecord)
    assert {outcome.outcome for outcome in outcomes if outcome.arm == "live"} == {"rejected"}
    assert {outcome.dialect for outcome in outcomes if outcome.arm == "live"} == {"generic_xml"}
    reported = {outcome.key: outcome.arm for outcome in outcomes if outcome.epoch == 1}
    answered: dict[str, str] = {}
    async with asyncio.timeout(10):
        while not reported.keys() <= answered.keys():  # the other gateway writes its own records, in its own time
            answered |= {record.key: record.arm for record in await pair.records(RequestRecord) if record.epoch == 1}
    assert reported
    assert {key: answered[key] for key in reported} == reported


async def test_an_answer_is_rated_at_the_other_gateway(start: Start) -> None:
    pair: Pair = await start(CANARY_PERCENT="100")
    await pair.ask(0, "rated")
    await pair.until_recorded(RequestRecord, 1)
    body = {"completion_id": "chatcmpl-1", "rating": "bad"}
    async with pair.client.post(f"{pair.programs[1].url}/v1/feedback", json=body) as response:
        assert response.status == 200, await response.text()
    given = await pair.programs[1].logged("feedback_given")
    assert (given["arm"], given["strategy"]) == ("live", "xml_prompt")
    await pair.until_recorded(FeedbackRecord, 1)
    [kept] = await pair.records(FeedbackRecord)
    [request] = await pair.records(RequestRecord)
    assert (kept.request_id, kept.arm) == (request.id, "live")


async def test_a_strategy_that_cannot_prepare_requests_is_a_fault_of_the_live_arm(start: Start, tmp_path: Path) -> None:
    """Clients notice nothing, as their requests go through untouched; but nothing is gained, either."""
    site = tmp_path / "site"
    info = site / "toolgate_stumbles-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolgate-stumbles\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[toolgate.strategies]\nstumbles = toolgate_stumbles:Stumbles\n")
    (site / "toolgate_stumbles.py").write_text(
        "class Stumbles:\n    name = 'stumbles'\n    def prepare(self, request, options):\n        raise KeyError(1)\n"
    )
    pair: Pair = await start(PYTHONPATH=str(site), STRATEGY_RULES="*=stumbles", TRANSFORM_MODE="full")
    async with pair.load():
        await until(lambda: pair.logged("rollout_decided"))
        await pair.until_arms({"dry_run"})
    assert pair.faults == []
    [decided] = pair.logged("rollout_decided")
    assert (decided["decision"], decided["reason"]) == ("rollback", "transform_errors")


async def test_a_redis_that_lost_everything_is_given_it_back(start: Start) -> None:
    """The secret that says who is live is made once; all processes keep to it, and so do those that come later."""
    pair: Pair = await start(CANARY_SALT=None, CANARY_PERCENT="0", CANARY_STEPS="50,95")
    await pair.changed("promote", "--force")
    await pair.until_arms({"live", "control"})
    names = [f"conversation {number}" for number in range(40)]
    before = [await pair.arm(0, name) for name in names]
    assert before == [await pair.arm(1, name) for name in names]
    await pair.redis.command("FLUSHALL")
    async with asyncio.timeout(30):
        for key in ("secret:salt", "rollout"):
            while await pair.redis.command("EXISTS", f"toolgate:value:{key}") != b":1":  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
    await pair.restart(1)
    for program in (0, 1):
        assert before == [await pair.arm(program, name) for name in names]
    assert pair.logged("salt_replaced") == []
    found = await pair.status()
    assert (found["state"], found["percent"], found["epoch"]) == ("canary", 50, 2)


async def test_a_gateway_knows_of_a_rollback_before_it_serves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url, prefix="", timeout_ms=2000)
    rules = RolloutRules(transform_mode="full")
    change = rolled_back(begun(rules, 0.0, "test"), rules, now=time.time(), by="test", reason="evidence", numbers={})
    await store.put(STATE_KEY, encoded(change.state))
    await store.close()
    settings = load({"STORE_URL": url, "TRANSFORM_MODE": "full"})
    upkeep = await Upkeep.begin(settings, cast("Any", Gauges()), names=frozenset())
    arm = upkeep.agent.assign("anybody").arm
    await upkeep.close()
    assert arm == "dry_run"
