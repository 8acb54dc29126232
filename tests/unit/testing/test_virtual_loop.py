"""The virtual loop keeps asyncio's order of events without waiting."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from libs.testing.errors import SimError
from libs.testing.simulation import START_TIME, Sim, run
from tests.support import in_virtual_time

DAY = 86_400.0


@in_virtual_time
async def test_days_pass_at_once(sim: Sim) -> None:
    for _ in range(10):
        await sim.clock.sleep(DAY)
    assert (sim.clock.monotonic(), sim.clock.now()) == (10 * DAY, START_TIME + 10 * DAY)


@in_virtual_time
async def test_timers_of_one_instant_fire_in_the_order_in_which_they_were_set(sim: Sim) -> None:
    fired: list[int] = []
    for number in range(100):
        # Round robin over ten instants.
        sim.loop.call_at(float(number % 10), fired.append, number)
    await asyncio.sleep(20)
    assert fired == sorted(range(100), key=lambda number: (number % 10, number))


@in_virtual_time
async def test_a_due_timer_is_not_starved_by_ready_callbacks(sim: Sim) -> None:
    due = asyncio.Event()
    sim.loop.call_later(0.0, due.set)
    turns = 0
    while not due.is_set():
        turns += 1
        await asyncio.sleep(0)
    assert turns == 2


@in_virtual_time
async def test_time_does_not_jump_to_a_cancelled_timer(sim: Sim) -> None:
    for _ in range(1_000):
        async with asyncio.timeout(DAY):
            await asyncio.sleep(0.001)
    assert (round(sim.clock.monotonic(), 6)) == 1.0


def test_an_open_async_generator_is_closed_at_the_end() -> None:
    closed: list[float] = []
    kept: list[AsyncIterator[int]] = []

    async def main(sim: Sim) -> None:
        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                await asyncio.sleep(3)
                closed.append(sim.clock.monotonic())

        kept.append(numbers())
        await anext(kept[0])

    run(main, seed=1)
    assert closed == [3.0]


async def test_the_loop_does_not_start_inside_a_running_loop() -> None:
    async def main(sim: Sim) -> None:
        pass

    with pytest.raises(SimError, match="cannot start inside a running loop"):
        run(main, seed=1)
