"""Virtual time for everything that takes a clock."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from sluice.runtime.clock import Clock
from tests.unit.runtime.virtual import LoopClock, Virtual, VirtualLoop


@pytest.fixture
def clock() -> Clock:
    """The virtual loop's time."""
    return LoopClock()


@pytest.fixture
def virtual() -> Virtual:
    """Runs a story in virtual time, checks that it left no task, and says how long it took."""

    async def watched(story: Coroutine[Any, Any, None]) -> float:
        await story
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        return round(asyncio.get_running_loop().time(), 6)

    def run(story: Coroutine[Any, Any, None]) -> float:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(watched(story))

    return run
