"""Kubernetes API servers for tests: a simulated one, and a real one where binaries are found."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from libs.testing.realkube.binaries import find_binaries
from libs.testing.realkube.cluster import RealKube
from tests.component.kube.sandbox import USERS, ServerUnderTest
from tests.component.kube.servers import real, simulated
from tests.grounds import standing, starting
from tests.run.plan import GroundKind
from tests.summary import GROUND

SEARCH = find_binaries(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the shared control plane on one worker: each process would start its own."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "binaries" in names:
            item.add_marker(GroundKind.UPGRADES.marker())
        elif "plane" in names or parameters.get("ground") == "real":
            item.add_marker(GroundKind.CONTROL_PLANE.marker())
        if "binaries" in names or "plane" in names or "ground" in names:
            ground = f"Kubernetes: a simulated API server; {SEARCH.explanation}"
            item.user_properties.append((GROUND, ground))


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> Iterator[RealKube]:
    """The one real control plane of this session; a test may restart it, and none stops it."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    with starting(request):
        plane = asyncio.run(RealKube.start(binaries=SEARCH.binaries, users=USERS))
    with standing(request, plane.problem):
        yield plane
    asyncio.run(plane.stop())


@pytest.fixture(params=["simulated", "real"])
def ground(request: pytest.FixtureRequest) -> RealKube | None:
    """The real control plane, or None for a simulated server."""
    return request.getfixturevalue("plane") if request.param == "real" else None


@pytest.fixture
async def server(ground: RealKube | None) -> AsyncIterator[ServerUnderTest]:
    """A server for each test; the processes of the real one are shared."""
    async with simulated() if ground is None else real(ground) as server:
        yield server
