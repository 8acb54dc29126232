"""A deadline by an injected clock behaves like `asyncio.timeout`."""

import asyncio

import pytest

from libs.runtime.clock import Clock
from libs.runtime.tasks import attempt, bounded
from tests.unit.runtime.virtual_time import in_virtual_time


def cancels() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@in_virtual_time(takes=2)
async def test_bounded_returns_the_value_in_time(clock: Clock) -> None:
    assert await bounded(asyncio.sleep(2, "value"), seconds=3, clock=clock) == "value"


@in_virtual_time(takes=4)
async def test_bounded_cancels_the_awaitable_after_the_deadline(clock: Clock) -> None:
    with pytest.raises(TimeoutError, match="not done after 3 s"):
        await bounded(asyncio.sleep(9), seconds=3, clock=clock)
    assert cancels() == 0
    await asyncio.sleep(1)


@in_virtual_time(takes=3)
async def test_bounded_returns_the_value_of_an_awaitable_that_swallows_cancellation(
    clock: Clock,
) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            return "swallowed"
        return "slept"

    assert await bounded(stubborn(), seconds=3, clock=clock) == "swallowed"
    assert cancels() == 0


@pytest.mark.parametrize("when", [1, 3], ids=["before", "together with the deadline"])
@in_virtual_time()
async def test_bounded_passes_on_a_cancellation_from_outside(clock: Clock, when: float) -> None:
    task = asyncio.create_task(bounded(asyncio.sleep(9), seconds=3, clock=clock))
    for _ in range(3):
        await asyncio.sleep(0)  # so that the deadline's timer precedes the cancellation
    loop = asyncio.get_running_loop()
    loop.call_later(when, task.cancel)
    await asyncio.wait({task})
    assert task.cancelled()
    assert loop.time() == when


@in_virtual_time()
async def test_attempt_returns_errors_but_not_cancellation() -> None:
    async def failing() -> None:
        raise KeyError("x")

    assert isinstance(await attempt(failing()), KeyError)
    assert await attempt(asyncio.sleep(0)) is None
    task = asyncio.create_task(attempt(asyncio.sleep(9)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
