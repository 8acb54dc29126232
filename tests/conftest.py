"""What holds for every test: nothing blocks the loop, and nothing is left running."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import blockbuster_ctx

SCANNED = ["libs.bus", "libs.runtime", "libs.contracts"]
"""Where a call that blocks the loop is a fault; the simulated fleet may start and end processes."""


@pytest.fixture(autouse=True)
def on_the_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests that run on an event loop, what `nothing_left` and blockbuster watch."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("nothing_left")
        with blockbuster_ctx(scanned_modules=SCANNED) as found:
            found.functions["io.TextIOWrapper.read"].can_block_in("bus/credentials.py", "_token")
            yield
    else:
        yield


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Fail when a test, with its fixtures closed, leaves a task behind."""
    yield
    left: set[asyncio.Task[object]] = set()
    for _ in range(20):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    pytest.fail(f"left running: {[str(task) for task in left]}")
