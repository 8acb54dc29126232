"""Fixtures: a clock, a journal and a service."""

import pytest

from libs.runtime.clock import Clock
from libs.runtime.service import Service
from tests.unit.runtime.virtual_time import LoopClock


@pytest.fixture
def clock() -> Clock:
    return LoopClock()


@pytest.fixture
def journal() -> list[str]:
    return []


@pytest.fixture
def service(clock: Clock, journal: list[str]) -> Service:
    """A service that writes its phases into the journal."""
    return Service("driver", clock=clock, drain_seconds=25, on_phase=journal.append)
