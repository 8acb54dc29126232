"""The work queue: order, delays, back-off, end; `test_queue_model` combines them."""

import asyncio
from collections.abc import Awaitable

import pytest

from libs.kube.queue import FAIR_TURN, RETRY_BURST, RETRY_RATE, QueueClosed, Urgency, WorkQueue
from libs.testing.simulation import Sim
from tests.unit.kube.world import SimWorld, in_virtual_time


class World(SimWorld):
    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        self.queue: WorkQueue[str] = WorkQueue(clock=sim.clock)

    async def close(self) -> None:
        self.queue.close()


async def now(getting: Awaitable[str]) -> str:
    """Return the key that is handed out without waiting."""
    return await asyncio.wait_for(getting, 0.001)


async def all_waiting(queue: WorkQueue[str]) -> list[str]:
    keys: list[str] = []
    while queue.stats().waiting:
        keys.append(await queue.get())
        queue.done(keys[-1])
    return keys


@in_virtual_time(World)
async def test_a_key_added_while_running_is_queued_again_afterwards(world: World) -> None:
    queue = world.queue
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


@in_virtual_time(World)
async def test_keys_are_taken_by_their_highest_urgency(world: World) -> None:
    queue = world.queue
    for key in ("r1", "r2"):
        queue.add(key, Urgency.RESYNC)
    for key in ("f1", "f2", "r2"):
        queue.add(key, Urgency.INITIAL)
    for key in ("l1", "f2"):
        queue.add(key)
    queue.add("l1", Urgency.RESYNC)
    assert await all_waiting(queue) == ["l1", "f2", "f1", "r2", "r1"]


@in_virtual_time(World)
async def test_a_resync_is_not_starved_by_live_changes(world: World) -> None:
    queue = world.queue
    for key in ("r1", "r2"):
        queue.add(key, Urgency.RESYNC)
    await world.clock.sleep(1)
    turns: list[str] = []
    for turn in range(3 * FAIR_TURN):
        queue.add(f"l{turn}")
        turns.append(await queue.get())
        queue.done(turns[-1])
    assert [turn for turn, key in enumerate(turns, 1) if key in ("r1", "r2")] == [
        FAIR_TURN,
        2 * FAIR_TURN,
    ]


@in_virtual_time(World)
async def test_a_failing_key_backs_off_to_five_minutes_until_it_is_forgotten(world: World) -> None:
    queue = world.queue
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
    assert world.clock.monotonic() == pytest.approx(sum(waits[:-1]))


@in_virtual_time(World)
async def test_retries_of_many_keys_are_rate_limited(world: World) -> None:
    queue = world.queue
    many = int(RETRY_BURST) + 1000
    for number in range(many):
        queue.retry(str(number))
    times: list[float] = []
    for _ in range(many):
        queue.done(await queue.get())
        times.append(world.clock.monotonic())
    assert times[int(RETRY_BURST) - 1] == pytest.approx(0.005)
    assert times[-1] == pytest.approx(1000 / RETRY_RATE)
    assert queue.stats().retried == many


@in_virtual_time(World)
async def test_many_delays_need_one_task(world: World) -> None:
    queue = world.queue
    draw = world.sim.random_for("delays")
    due = {str(number): draw.uniform(0, 600) for number in range(5000)}
    for key, seconds in due.items():
        queue.add_after(key, seconds)
    await world.clock.sleep(0)
    assert len(asyncio.all_tasks()) == 2
    for _ in due:
        key = await queue.get()
        queue.done(key)
        assert world.clock.monotonic() == pytest.approx(due[key])


@in_virtual_time(World)
async def test_outdated_delays_do_not_accumulate(world: World) -> None:
    queue = world.queue
    for _ in range(1000):
        queue.add_after("a", 1e6)
        queue.add_after("a", 1)
        queue.done(await queue.get())
    heap = queue._delays._heap  # pyright: ignore[reportPrivateUsage]
    assert len(heap) < 100


@in_virtual_time(World)
async def test_close_drops_waiting_keys_and_ends_getters(world: World) -> None:
    queue = world.queue
    queue.add("worked on")
    assert await queue.get() == "worked on"
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await world.clock.sleep(0)
    queue.add_after("later", 5)
    queue.add("worked on")
    queue.close()
    for getter in getters:
        with pytest.raises(QueueClosed):
            await getter
    queue.add("new")
    queue.add_after("newer", 1)
    queue.done("worked on")
    await world.clock.sleep(10)
    stats = queue.stats()
    assert (stats.waiting, stats.delayed, stats.working) == (0, 0, 0)
    with pytest.raises(QueueClosed):
        await queue.get()
