"""Checks for every test: nothing blocks the event loop, and no task is left running."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator

import hypothesis
import pytest
from blockbuster import blockbuster_ctx

from tests import summary
from tests.workers import WorkerGroup

SCANNED = ["libs.bus", "libs.runtime", "libs.contracts"]
"""Packages in which a blocking call on the event loop is an error."""

# No test fails because a machine is busy.
hypothesis.settings.register_profile("sluice", deadline=None)
hypothesis.settings.load_profile("sluice")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the tests that are too dear for each run."""
    parser.addoption("--soak", action="store_true", help="run only the tests marked `soak`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of this run; begin with the groups that share a worker.

    A test that is marked `soak` and named on the command line by its own id runs nevertheless.
    """
    soak = bool(config.getoption("soak"))
    named = any("::" in argument for argument in config.args)
    others = [
        item
        for item in items
        if (item.get_closest_marker("soak") is not None) != soak and not named
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    order = [group.value for group in WorkerGroup]

    def place(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        if group is None:
            return len(order) + 1
        return order.index(group.args[0]) if group.args[0] in order else len(order)

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests ran on, and what they measured."""
    for line in summary.lines(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def event_loop_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Apply the checks to tests that run on an event loop."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("no_task_left")
        with blockbuster_ctx(scanned_modules=SCANNED):
            yield
    else:
        yield


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fail when a task is left after a test and its fixtures."""
    yield
    left: set[asyncio.Task[object]] = set()
    for _ in range(20):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    pytest.fail(f"left running: {[str(task) for task in left]}")
