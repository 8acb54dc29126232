"""The options of a run, and its place in pytest: see `plan`, `forked`, `told` beside it."""

import os
from collections.abc import Generator
from typing import Final

import pytest

from tests.run.forked import Workers
from tests.run.plan import CORES_PER_HEAVY_GROUND, MARKER, plan_of
from tests.run.told import Told

_TOLD: Final = pytest.StashKey[Told]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("Sluice")
    group.addoption("--soak", action="store_true", help="run only the tests marked `soak`")
    group.addoption(
        "--workers",
        default="0",
        help="processes that run tests: a number, or auto; 0 is this process, for a debugger",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(name): runs on one worker with all tests of that ground or name"
    )


def workers_for(wanted: str) -> int:
    """Return how many workers: one for each core, and two for grounds, which mostly wait."""
    if wanted != "auto":
        return int(wanted)
    cores = len(os.sched_getaffinity(0))
    return cores + max(1, cores // CORES_PER_HEAVY_GROUND) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is too dear for each run, or with `--soak` all else.

    What is named on the command line by its own id runs in any case.
    """
    soak = bool(config.getoption("soak"))
    if not soak and any("::" in argument for argument in config.args):
        return
    chosen = [item for item in items if (item.get_closest_marker("soak") is not None) == soak]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests on workers; without any, pytest runs them in this process."""
    number = workers_for(str(session.config.getoption("workers")))
    if number == 0 or session.testsfailed or session.config.option.collectonly:
        return None
    plan = plan_of(session.items, cores=len(os.sched_getaffinity(0)))
    told = session.config.stash[_TOLD] = Told(session)
    Workers(session, plan, number, told).run()
    return True


@pytest.hookimpl(wrapper=True)
def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
    """Print no letter for a test of a worker: lines say how the run goes."""
    category, letter, word = yield
    return (category, "", "") if _TOLD in config.stash else (category, letter, word)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    told = config.stash.get(_TOLD, None)
    if told is not None:
        terminalreporter.section("grounds and costs")
        for line in told.summary():
            terminalreporter.write_line(line)
