"""The work queue's promises, one by one, as stories in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from libs.kube.queue import FAIR_TURN, RETRY_BURST, RETRY_RATE, QueueClosed, Urgency, WorkQueue
from libs.testing.simulation import Sim, run

Queue = WorkQueue[str]


def run_story(tell: Callable[[Sim, Queue], Coroutine[Any, Any, None]]) -> None:
    async def main(sim: Sim) -> None:
        queue = Queue(clock=sim.clock)
        await tell(sim, queue)
        queue.close()

    run(main, seed=1)


async def now(getting: Awaitable[str]) -> str:
    """What is handed out without waiting."""
    return await asyncio.wait_for(getting, 0.001)


async def all_there_is(queue: Queue) -> list[str]:
    keys: list[str] = []
    while queue.stats().waiting:
        keys.append(await queue.get())
        queue.done(keys[-1])
    return keys


def test_a_key_added_while_running_is_queued_again_afterwards() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add("a")
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("a")
        with pytest.raises(TimeoutError):
            await now(queue.get())
        queue.done("a")
        assert await now(queue.get()) == "a"
        queue.done("a")
        assert queue.stats().waiting == 0

    run_story(tell)


def test_order_of_urgencies() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        for key in ("r1", "r2"):
            queue.add(key, Urgency.RESYNC)
        for key in ("f1", "f2", "r2"):
            queue.add(key, Urgency.INITIAL)
        for key in ("l1", "f2"):
            queue.add(key)
        queue.add("l1", Urgency.RESYNC)
        assert await all_there_is(queue) == ["l1", "f2", "f1", "r2", "r1"]

    run_story(tell)


def test_a_raised_key_is_handed_out_once() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        for key in ("a", "b"):
            queue.add(key, Urgency.RESYNC)
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
        queue.add("a", Urgency.RESYNC)
        assert await all_there_is(queue) == ["b", "a"]

    run_story(tell)


def test_a_key_added_while_running_keeps_its_highest_urgency() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add("a", Urgency.RESYNC)
        assert await queue.get() == "a"
        queue.add("b", Urgency.INITIAL)
        queue.add("a")
        queue.add("a", Urgency.RESYNC)
        queue.done("a")
        assert await all_there_is(queue) == ["a", "b"]

    run_story(tell)


def test_a_resync_is_not_starved_by_live_changes() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        for key in ("r1", "r2"):
            queue.add(key, Urgency.RESYNC)
        await sim.clock.sleep(1)
        turns: list[str] = []
        for turn in range(3 * FAIR_TURN):
            queue.add(f"l{turn}")
            turns.append(await queue.get())
            queue.done(turns[-1])
        assert [turn for turn, key in enumerate(turns, 1) if key in ("r1", "r2")] == [
            FAIR_TURN,
            2 * FAIR_TURN,
        ]

    run_story(tell)


def test_the_earlier_of_two_delays_counts() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add_after("a", 4)
        queue.add_after("a", 1)
        queue.add_after("a", 3)
        assert await queue.get() == "a"
        assert sim.clock.monotonic() == 1
        queue.done("a")
        queue.add_after("a", 5)
        assert await queue.get() == "a"
        assert sim.clock.monotonic() == 6

    run_story(tell)


def test_a_delay_keeps_its_highest_urgency() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add("f", Urgency.INITIAL)
        queue.add_after("a", 1, Urgency.RESYNC)
        queue.add_after("a", 2, Urgency.LIVE)
        queue.add_after("a", 3, Urgency.RESYNC)
        await sim.clock.sleep(1.5)
        assert await all_there_is(queue) == ["a", "f"]

    run_story(tell)


def test_a_change_does_not_cancel_a_delay() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add_after("a", 10)
        queue.add("a")
        assert await now(queue.get()) == "a"
        queue.done("a")
        assert await queue.get() == "a"
        assert sim.clock.monotonic() == 10

    run_story(tell)


def test_a_failing_key_backs_off_to_five_minutes_until_it_is_forgotten() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        waits: list[float] = []
        queue.add("a")
        for _ in range(20):
            assert await queue.get() == "a"
            waits.append(queue.retry("a"))
            queue.done("a")
        assert waits[:4] == [0.005, 0.01, 0.02, 0.04]
        assert waits[15:] == [0.005 * 2**15, 300, 300, 300, 300]
        queue.forget("a")
        assert queue.retry("a") == 0.005
        assert queue.retry("a", at_least=7) == 7
        assert sim.clock.monotonic() == pytest.approx(sum(waits[:-1]))

    run_story(tell)


def test_a_retry_keeps_the_urgency() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add("r", Urgency.RESYNC)
        assert await queue.get() == "r"
        queue.retry("r")
        queue.done("r")
        await sim.clock.sleep(1)
        queue.add("f", Urgency.INITIAL)
        assert await all_there_is(queue) == ["f", "r"]

    run_story(tell)


def test_retries_of_many_keys_are_rate_limited() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        many = int(RETRY_BURST) + 1000
        for number in range(many):
            queue.retry(str(number))
        times: list[float] = []
        for _ in range(many):
            queue.done(await queue.get())
            times.append(sim.clock.monotonic())
        assert times[int(RETRY_BURST) - 1] == pytest.approx(0.005)
        assert times[-1] == pytest.approx(1000 / RETRY_RATE)
        assert queue.stats().retried == many

    run_story(tell)


def test_many_delays_need_one_task() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        draw = sim.random_for("delays")
        due = {str(number): draw.uniform(0, 600) for number in range(5000)}
        for key, seconds in due.items():
            queue.add_after(key, seconds)
        await sim.clock.sleep(0)
        assert len(asyncio.all_tasks()) == 2
        for _ in due:
            key = await queue.get()
            queue.done(key)
            assert sim.clock.monotonic() == pytest.approx(due[key])

    run_story(tell)


def test_outdated_delays_do_not_accumulate() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        for _ in range(1000):
            queue.add_after("a", 1e6)
            queue.add_after("a", 1)
            queue.done(await queue.get())
        heap = queue._delays._heap  # pyright: ignore[reportPrivateUsage]
        assert len(heap) < 100

    run_story(tell)


def test_close_drops_waiting_keys_and_ends_getters() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add("worked on")
        assert await queue.get() == "worked on"
        takers = [asyncio.create_task(queue.get()) for _ in range(3)]
        await sim.clock.sleep(0)
        queue.add_after("later", 5)
        queue.add("worked on")
        queue.close()
        for taker in takers:
            with pytest.raises(QueueClosed):
                await taker
        queue.add("new")
        queue.add_after("newer", 1)
        queue.done("worked on")
        await sim.clock.sleep(10)
        standing = queue.stats()
        assert (standing.waiting, standing.delayed, standing.working) == (0, 0, 0)
        with pytest.raises(QueueClosed):
            await queue.get()

    run_story(tell)


def test_the_oldest_waiting_key_is_measured() -> None:
    async def tell(sim: Sim, queue: Queue) -> None:
        queue.add("a", Urgency.RESYNC)
        await sim.clock.sleep(5)
        queue.add("b", Urgency.RESYNC)
        queue.add("a")  # raised, it is no younger
        await sim.clock.sleep(2)
        assert queue.stats().oldest == 7
        queue.done(await queue.get())
        assert queue.stats().oldest == 2
        assert queue.stats().added == 2

    run_story(tell)
