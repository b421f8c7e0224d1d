"""One client against the others of the same gateway: kinds of ill will, and what they come to for everybody else."""

import json
from typing import Any

import pytest

from gateway.core.records import FeedbackRecord, OutcomeRecord
from tests.attacks.conftest import CALL, HONEST, TOOLS, Arena
from tests.support.client import chat, get
from tests.support.faulty_upstream import Connection, Received, answer_json, stream, text

EVE, ADA = "sk-eve-0001", "sk-ada-0002"
CANARY = {
    "GATEWAY_API_KEYS": f"{ADA},{EVE}",
    "TRANSFORM_MODE": "canary",
    "CANARY_PERCENT": "50",
    "CANARY_SALT": "always-the-same",
    "ROLLOUT_AUTO": "rollback",
}
FAULT = "Error: Missing value for required parameter 'path'"


class Town:
    """The arena with a clock in hand: seconds pass when it says so."""

    def __init__(self, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arena = arena
        self.now = 1_800_000_000.0
        self._patch = monkeypatch

    async def begin(self, **settings: str) -> None:
        running = await self.arena.begin(**CANARY, **settings)
        self.agent = running.upkeep.agent
        self._patch.setattr(self.agent, "clock", lambda: self.now)
        self._patch.setattr(running.upkeep.store._store, "wall", lambda: self.now)
        await self.second()

    async def second(self) -> None:
        """A second passes, and all that was counted in it is judged."""
        await self.agent.tick()
        self.now += 1.0
        await self.agent.tick()

    async def asked(self, key: str, *said: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        """A request: its arm, and the conversation with its answer."""
        got = await self.arena.ask(key=key, messages=list(said))
        found = [
            call for chunk in got.chunks for each in chunk["choices"] for call in each["delta"].get("tool_calls", ())
        ]
        answer: dict[str, Any] = {"role": "assistant", "content": CALL}
        if found:
            function = {"name": "read_file", "arguments": '{"path": "a.py"}'}
            answer |= {
                "content": None,
                "tool_calls": [{"id": found[0]["id"], "type": "function", "function": function}],
            }
        return got.headers["X-Toolgate-Arm"], [*said, answer]

    async def turn(self, key: str, number: int, result: str) -> str:
        """A conversation of two requests: a call, and what became of it. Returns its arm."""
        arm, told = await self.asked(key, {"role": "user", "content": f"conversation {number} of {key}"})
        if "tool_calls" in told[-1]:
            said = {"role": "tool", "tool_call_id": told[-1]["tool_calls"][0]["id"], "content": result}
        else:
            said = {"role": "user", "content": "[Tool Result: read_file]\n\nResult:\nfine"}
        await self.asked(key, *told, said)
        return arm

    @property
    def state(self) -> tuple[str, tuple[str, ...]]:
        snapshot = self.agent.snapshot()
        return snapshot.state, tuple(self.agent.slices_off)


@pytest.fixture
def town(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(arena, monkeypatch)


async def test_forged_rejections_of_one_key_take_nothing_back(town: Town) -> None:
    """It reads in which arm it is, and reports faults in live conversations alone."""
    await town.begin()
    await town.turn(ADA, 0, "fine")
    for number in range(24):
        await town.turn(EVE, number, FAULT)
        await town.turn(EVE, 1000 + number, FAULT)
        await town.second()
    assert town.state == ("canary", ())
    assert max(town.agent.snapshot().statistics.values()) < town.agent.rules.judge().limit
    for number in range(60):
        await town.turn(ADA, number, FAULT)
        await town.turn(ADA, 1000 + number, FAULT)
        await town.second()
        if town.state != ("canary", ()):
            break
    assert town.state != ("canary", ()), "a fault that both see is one"


async def test_one_follow_up_sent_again_and_again_is_one_outcome(town: Town) -> None:
    await town.begin()
    await town.turn(ADA, 0, "fine")
    for number in range(50):
        arm, told = await town.asked(EVE, {"role": "user", "content": f"again {number}"})
        if arm == "live":
            break
    told.append({"role": "tool", "tool_call_id": told[-1]["tool_calls"][0]["id"], "content": FAULT})
    for _ in range(6):
        await town.asked(EVE, *told)
        await town.second()
    running = town.arena.running
    assert await running.upkeep.recorder.flush(5)
    rejected = [one async for one in running.upkeep.store.scan(OutcomeRecord) if one.outcome == "rejected"]
    assert len(rejected) == 1
    metrics = (await get(town.arena.client, f"{town.arena.url}/metrics")).body.decode()
    counted = [line for line in metrics.splitlines() if "toolgate_outcomes_total{" in line and "rejected" in line]
    assert [line.rpartition(" ")[2] for line in counted if not line.endswith(" 0.0")] == ["1.0"]


async def test_requests_that_fail_by_their_own_doing_switch_nothing_off(town: Town) -> None:
    """Answers that break in live conversations of one key, however many."""
    await town.begin()
    await town.turn(ADA, 0, "fine")
    broken = stream(text("I look.\n"), text(CALL[:30]))
    for number in range(50):
        said = [{"role": "user", "content": f"break {number}"}]
        town.arena.upstream.script = HONEST
        arm = (await town.arena.ask(key=EVE, messages=said)).headers["X-Toolgate-Arm"]
        if arm == "live":
            town.arena.upstream.script = broken
            await town.arena.ask(key=EVE, messages=said)
        await town.second()
    assert town.state == ("canary", ())


async def test_nobody_rates_the_answers_of_others(town: Town) -> None:
    arena = town.arena
    await arena.begin(GATEWAY_API_KEYS=f"{ADA},{EVE}", STORE_URL="memory://")
    await arena.ask(key=ADA)
    rating = b'{"completion_id": "chatcmpl-1", "rating": "bad"}'
    status, body = await arena.post(rating, "/v1/feedback", Authorization=f"Bearer {EVE}")
    assert status == 404, body
    arena.running.shared.answers._answers.clear()  # as after a restart: it is looked for in the store
    assert await arena.running.upkeep.recorder.flush(5)
    assert (await arena.post(rating, "/v1/feedback", Authorization=f"Bearer {EVE}"))[0] == 404
    assert (await arena.post(rating, "/v1/feedback", Authorization=f"Bearer {ADA}"))[0] == 200
    assert await arena.running.upkeep.recorder.flush(5)
    assert len([one async for one in arena.running.upkeep.store.scan(FeedbackRecord)]) == 1


async def test_no_flood_of_names_takes_the_series_of_others(town: Town) -> None:
    arena = town.arena
    await arena.begin(GATEWAY_API_KEYS=f"{ADA},{EVE}", METRICS_LABEL_CAP="8")
    for number in range(30):
        await arena.ask(f"eve-{number}", key=EVE)
    await arena.ask("the-model-of-ada", key=ADA)
    metrics = (await get(arena.client, f"{arena.url}/metrics", headers=arena.headers(ADA))).body.decode()
    assert 'model="the-model-of-ada"' in metrics
    assert len({line for line in metrics.splitlines() if "by_model_total{" in line and 'model="eve-' in line}) > 0


@pytest.mark.parametrize("written", ["does not support tools", "does \\u006eot\\n support  tools"])
async def test_words_of_one_client_teach_nothing_about_the_server(arena: Arena, written: str) -> None:
    """A server quotes what it refuses: it would be asked in another way for an hour, whoever asks."""
    await arena.begin(GATEWAY_API_KEYS=f"{ADA},{EVE}")
    told = " ".join(json.loads(f'"{written}"').split())

    async def quotes(connection: Connection, received: Received) -> None:
        if "tools" not in received.json:
            await HONEST(connection, received)
        else:
            error = {"message": f"invalid description: this {told}", "type": "invalid_request_error"}
            await answer_json({"error": error}, status="400 Bad Request")(connection, received)

    arena.upstream.script = quotes
    tool = json.loads(json.dumps(TOOLS[0]))
    tool["function"]["description"] = "X"
    body = json.dumps(chat(tools=[tool]))
    data = body.replace('"X"', f'"{written}"').encode()
    assert (await arena.post(data, Authorization=f"Bearer {EVE}"))[0] in (200, 400)
    arena.upstream.script = HONEST
    await arena.ask(key=ADA, model="gpt-4o")
    assert "tools" in arena.upstream.last.json
