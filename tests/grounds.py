"""Grounds that stand while tests run: the death of one is told once, with its own last lines.

    @pytest.fixture(scope="session")
    def booted(request) -> Iterator[Guest]:
        with starting(request):
            guest = asyncio.run(Guest.start(folder))
        with standing(request, guest.problem):
            yield guest
        asyncio.run(guest.stop())

The test that meets a ground that does not start, or no longer lives, fails and says why. The tests
after it that need the ground are not run: they would tell the same thing thirty times.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

NOT_RUN: Final = "not run: "

Problem = Callable[[], str | None]
"""Says in a few lines why a ground is dead; nothing while it lives."""


@dataclass(slots=True)
class _Standing:
    problem: Problem | None = None
    died_in: str | None = None
    """The test that met its death, and told it."""


_standing: Final[dict[str, _Standing]] = {}
"""By the name of the fixture."""


@contextmanager
def starting(request: pytest.FixtureRequest) -> Generator[None]:
    """Remember a ground that does not start; a skip is no such failure."""
    ground = _standing.setdefault(_fixture(request), _Standing())
    try:
        yield
    except Exception:
        ground.died_in = _test()
        raise


@contextmanager
def standing(request: pytest.FixtureRequest, problem: Problem) -> Generator[None]:
    """Ask after the ground whenever a test fails, as long as it stands."""
    name = _fixture(request)
    _standing[name] = _Standing(problem)
    try:
        yield
    finally:
        del _standing[name]


def dead_ground_of(item: pytest.Item) -> str | None:
    """Say why an item is not run: a ground that it needs is dead, which a test has told."""
    for name in getattr(item, "fixturenames", ()):
        ground = _standing.get(name)
        if ground is not None and ground.died_in is not None:
            return f"{NOT_RUN}its ground, `{name}`, was dead after {ground.died_in}"
    return None


def problems(item: pytest.Item) -> list[str]:
    """Return what is wrong with the grounds of an item that failed, if they died of it."""
    told: list[str] = []
    for name in getattr(item, "fixturenames", ()):
        ground = _standing.get(name)
        if ground is None or ground.problem is None or ground.died_in is not None:
            continue
        problem = ground.problem()
        if problem is not None:
            ground.died_in = item.nodeid
            told.append(f"{name}: {problem}")
    return told


def _fixture(request: pytest.FixtureRequest) -> str:
    return str(request.fixturename)


def _test() -> str:
    """Return the test that is running, as pytest tells every process."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
