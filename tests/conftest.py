"""Checks for every test: nothing blocks the event loop, and no task is left running."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Generator, Iterator

import hypothesis
import pytest
from blockbuster import blockbuster_ctx

from tests import grounds, summary

pytest_plugins = ["tests.run.plugin"]

SCANNED = ["libs.bus", "libs.runtime", "libs.contracts"]
"""Packages in which a blocking call on the event loop is an error."""
CALLERS_DECIDE = ["libs.runtime.files"]
"""Blocks for whoever calls it: an error from the packages above, and none from a simulated host."""

# No test fails because a machine is busy.
hypothesis.settings.register_profile("sluice", deadline=None)
hypothesis.settings.load_profile("sluice")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests ran on, and what they measured."""
    for line in summary.lines(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test whose ground is dead: that has been told."""
    reason = grounds.dead_ground_of(item)
    if reason is not None:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell with a failure that the test's ground is dead, and of what."""
    report = yield
    if report.failed:
        report.sections += [("its ground is dead", problem) for problem in grounds.problems(item)]
    return report


@pytest.fixture(autouse=True)
def event_loop_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Apply the checks to tests that run on an event loop."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("no_task_left")
        with blockbuster_ctx(scanned_modules=SCANNED, excluded_modules=CALLERS_DECIDE):
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
