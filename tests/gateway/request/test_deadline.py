import asyncio

import pytest

from gateway.core.errors import Draining
from gateway.request import deadline as deadline_module
from gateway.request.deadline import Deadline
from tests.support.cost import Pulse


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
    for _ in range(20):
        await deadline.within(start + 0.02, soon(1))
    with pytest.raises(TimeoutError):
        await deadline.within(start + 0.08, never)
    assert deadline.now() - start >= 0.08
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


async def test_a_cancellation_from_outside_stays_one(never):
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
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_outside_wins_over_an_interruption(never):
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
