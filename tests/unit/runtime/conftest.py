"""Fixtures: virtual time, a journal and a service."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from libs.runtime.clock import Clock
from libs.runtime.service import Service
from tests.unit.runtime.virtual_time import LoopClock, Virtual, VirtualLoop


@pytest.fixture
def clock() -> Clock:
    return LoopClock()


@pytest.fixture
def virtual() -> Virtual:
    """Run a story in virtual time, check that no task is left, and return how long it took."""

    async def watched(story: Coroutine[Any, Any, None]) -> float:
        await story
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        return round(asyncio.get_running_loop().time(), 6)

    def run(story: Coroutine[Any, Any, None]) -> float:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(watched(story))

    return run


@pytest.fixture
def journal() -> list[str]:
    return []


@pytest.fixture
def service(clock: Clock, journal: list[str]) -> Service:
    """A service that writes its phases into the journal."""
    return Service("driver", clock=clock, drain_seconds=25, on_phase=journal.append)
