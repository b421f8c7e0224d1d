"""What is done every second: each who hears it is called, whatever another one does, and how late it came is told."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from gateway.background import pulse as pulses
from gateway.background.pulse import Pulse


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "PULSE_S", 0.002)


async def test_one_that_fails_keeps_neither_the_others_nor_the_next_beat_from_being_heard(monkeypatch):
    def failing() -> None:
        raise ZeroDivisionError

    thrice = asyncio.Event()
    heard: list[int] = []

    def hear() -> None:
        heard.append(1)
        if len(heard) == 3:
            thrice.set()

    told: list[str] = []
    monkeypatch.setattr(pulses, "log", SimpleNamespace(exception=told.append))
    pulse = Pulse(failing, hear, on_lag=lambda _: None)
    await thrice.wait()
    pulse.end()

    assert set(told) == {"pulse_failed"}


async def test_a_loop_that_was_held_up_is_told_by_how_much():
    beaten = asyncio.Event()
    told: list[float] = []
    pulse = Pulse(beaten.set, on_lag=told.append)

    time.sleep(0.05)  # noqa: ASYNC251 - held up on purpose
    await beaten.wait()
    pulse.end()

    assert told[0] >= 0.04


async def test_behind_its_end_nobody_hears_anything():
    heard: list[None] = []
    pulse = Pulse(lambda: heard.append(None), on_lag=lambda _: None)

    pulse.end()
    await asyncio.sleep(0.02)

    assert heard == []
