"""One guest for all tests of a session."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from libs.testing.guest import actions
from libs.testing.guest.guest import Guest, find_guest
from tests.grounds import standing, starting
from tests.run.plan import GroundKind
from tests.summary import FIGURE, GROUND
from tests.system.guest.guest_kernel import GuestKernelFixture

SEARCH = find_guest(os.environ)
_boots: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests in the guest on one worker: each process would start its own."""
    for item in items:
        if "guest" in getattr(item, "fixturenames", ()):
            item.add_marker(GroundKind.GUEST.marker())
            item.user_properties.append((GROUND, f"Guest: {SEARCH.explanation}"))


@pytest.fixture(scope="session")
def booted(request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A guest, if it was built."""
    if SEARCH.folder is None:
        pytest.skip(SEARCH.explanation)
    started = time.monotonic()
    with starting(request):
        guest = asyncio.run(Guest.start(SEARCH.folder))
    _boots.append(f"{time.monotonic() - started:.1f} s")
    with standing(request, guest.problem):
        yield guest
    asyncio.run(guest.stop())


@pytest.fixture
async def guest(booted: Guest, request: pytest.FixtureRequest) -> AsyncIterator[Guest]:
    """The guest without a driver, without processes and mounts of other tests."""
    while _boots:
        request.node.user_properties.append((FIGURE, f"boot of the guest: {_boots.pop()}"))
    yield booted
    if booted.problem() is None:
        await booted.call(actions.reset)


@pytest.fixture
def kernel(guest: Guest) -> GuestKernelFixture:
    return GuestKernelFixture(guest)
