"""The virtual loop does what asyncio promises, in no time."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from libs.testing.errors import SimError
from libs.testing.simulation import START_TIME, Sim, run
from libs.testing.virtual_loop import VirtualLoop

DAY = 86_400.0


def test_days_pass_at_once() -> None:
    async def main(sim: Sim) -> tuple[float, float]:
        for _ in range(10):
            await sim.clock.sleep(DAY)
        return sim.clock.monotonic(), sim.clock.now()

    assert run(main, seed=1) == (10 * DAY, START_TIME + 10 * DAY)


def test_the_run_begins_when_it_is_told_to() -> None:
    async def main(sim: Sim) -> float:
        return sim.clock.now()

    assert run(main, seed=1, start=12.5) == 12.5


def test_timers_of_one_instant_fire_in_the_order_of_their_setting() -> None:
    async def main(sim: Sim) -> list[int]:
        fired: list[int] = []
        for number in range(100):
            # Ten instants, set in turn.
            sim.loop.call_at(float(number % 10), fired.append, number)
        await asyncio.sleep(20)
        return fired

    assert run(main, seed=1) == sorted(range(100), key=lambda number: (number % 10, number))


def test_a_timer_that_is_due_is_not_starved_by_what_is_ready() -> None:
    async def main(sim: Sim) -> int:
        due = asyncio.Event()
        sim.loop.call_later(0.0, due.set)
        turns = 0
        while not due.is_set():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert run(main, seed=1) == 2


def test_time_does_not_jump_to_a_cancelled_timer() -> None:
    async def main(sim: Sim) -> float:
        for _ in range(1_000):
            async with asyncio.timeout(DAY):
                await asyncio.sleep(0.001)
        return round(sim.clock.monotonic(), 6)

    assert run(main, seed=1) == 1.0


def test_a_timeout_ends_what_takes_too_long() -> None:
    async def main(sim: Sim) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(DAY)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), timeout=12)
        return sim.clock.monotonic()

    assert run(main, seed=1) == 42.0


def test_a_queue_hands_over_between_tasks() -> None:
    async def main(sim: Sim) -> list[tuple[float, int]]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)

        async def consume() -> list[tuple[float, int]]:
            taken: list[tuple[float, int]] = []
            for _ in range(5):
                await asyncio.sleep(1)
                taken.append((sim.clock.monotonic(), await queue.get()))
            return taken

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            consuming = group.create_task(consume())
        return consuming.result()

    assert run(main, seed=1) == [(1.0, 0), (2.0, 1), (3.0, 2), (4.0, 3), (5.0, 4)]


def test_a_lock_and_an_event_keep_the_order_of_arrival() -> None:
    async def main(sim: Sim) -> list[tuple[float, int]]:
        lock, begin = asyncio.Lock(), asyncio.Event()
        entered: list[tuple[float, int]] = []

        async def enter(number: int) -> None:
            await begin.wait()
            async with lock:
                entered.append((sim.clock.monotonic(), number))
                await asyncio.sleep(2)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(enter(number))
            sim.loop.call_later(5, begin.set)
        return entered

    assert run(main, seed=1) == [(5.0, 0), (7.0, 1), (9.0, 2)]


def test_call_soon_threadsafe_works_on_the_loops_own_thread() -> None:
    async def main(sim: Sim) -> None:
        called = asyncio.Event()
        sim.loop.call_soon_threadsafe(called.set)
        await called.wait()

    run(main, seed=1)


def test_tasks_without_a_name_are_named_by_their_number() -> None:
    async def main(sim: Sim) -> list[str]:
        async def nothing() -> None:
            pass

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(nothing()), group.create_task(nothing(), name="mine")]
        return [task.get_name() for task in tasks]

    names = run(main, seed=1)
    assert names[1] == "mine"
    assert run(main, seed=1) == names


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


def test_the_collector_of_garbage_is_given_back_as_it_was() -> None:
    async def main(sim: Sim) -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    assert not run(main, seed=1)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_it_fits_asyncios_own_runner() -> None:
    async def main() -> float:
        await asyncio.sleep(DAY)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit=10 * DAY)) as runner:
        assert runner.run(main()) == DAY
        assert runner.run(main()) == 2 * DAY


async def test_it_does_not_run_inside_another_loop() -> None:
    async def main(sim: Sim) -> None:
        pass

    with pytest.raises(SimError, match="begun inside a running loop"):
        run(main, seed=1)
