"""A plan in a process of its own."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from libs.forecast.options import PlanOptions
from services.scheduler.plan_process import PlanFailed, PlanRequest, answer_plan, run_in_process
from tests.unit.forecast.builders import gpu_pod, old_node, pool_with_limits
from tests.unit.rollout.builders import POOL, fleet, instant

REQUEST = PlanRequest(
    fleet=replace(
        fleet(
            pool_with_limits(parallel=2),
            *(old_node(f"node-{number}", gpu_pod(f"w{number}")) for number in range(4)),
        ),
        budgets={"ml/web": 1},
    ),
    now=instant(),
    pool=POOL,
    options=PlanOptions(max_unavailable="20%"),
    seed=7,
)


async def test_a_process_gives_the_same_plan() -> None:
    assert await run_in_process(REQUEST) == answer_plan(REQUEST)


async def test_a_plan_that_cannot_be_computed_says_why() -> None:
    with pytest.raises(PlanFailed, match="pool 'unknown' not found"):
        await run_in_process(replace(REQUEST, pool="unknown"))


async def test_the_event_loop_continues_during_a_plan() -> None:
    """In a thread, the interpreter would be held for long parts of the time."""
    longest = 0.0
    task = asyncio.create_task(run_in_process(REQUEST))
    while not task.done():
        began = time.process_time()  # not of other processes, which use the same processor
        await asyncio.sleep(0.001)
        longest = max(longest, time.process_time() - began)
    await task
    assert longest < 0.5


def children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split()]


async def test_a_cancelled_plan_leaves_no_process() -> None:
    before = children()
    task = asyncio.create_task(run_in_process(REQUEST))
    while children() == before:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == before


async def test_a_killed_plan_is_an_error() -> None:
    before = set(children())
    task = asyncio.create_task(run_in_process(REQUEST))
    while not set(children()) - before:
        await asyncio.sleep(0.01)
    (pid,) = set(children()) - before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PlanFailed, match="its process ended: -9"):
        await task
