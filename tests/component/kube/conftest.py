"""A Kubernetes API to try: simulated, and a real control plane where its binaries are found."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from sluice.kube.client import Kube
from sluice.sim.realkube.binaries import find
from sluice.sim.realkube.cluster import RealKube
from tests.component.kube.places import ALICE, USERS, Place, Server
from tests.component.kube.servers import real, simulated
from tests.component.kube.widgets import WIDGETS, definition

SEARCH = find(os.environ)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which servers were there to try."""
    terminalreporter.write_line(f"Kubernetes: a simulated API server; {SEARCH.words}")


@pytest.fixture(scope="session")
def plane() -> Iterator[RealKube]:
    """The one real control plane of this session."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.words)
    plane = asyncio.run(RealKube.start(binaries=SEARCH.binaries, users=USERS))
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture(params=["simulated", "real"])
def ground(request: pytest.FixtureRequest) -> RealKube | None:
    """The real control plane, or none: then the test has a simulated server of its own."""
    return request.getfixturevalue("plane") if request.param == "real" else None


@pytest.fixture
async def server(ground: RealKube | None) -> AsyncIterator[Server]:
    """Made anew for each test, but for the real one's processes."""
    async with simulated() if ground is None else real(ground) as server:
        yield server


@pytest.fixture
async def place(server: Server) -> AsyncIterator[Place]:
    """This test's part of the server."""
    place = Place(server, token=secrets.token_hex(4))
    await place.open()
    yield place
    await place.close()


@pytest.fixture
async def kube(place: Place) -> Kube:
    """Us."""
    return place.kube()


@pytest.fixture
async def node(place: Place) -> str:
    """A node's name."""
    return await place.node("n")


@pytest.fixture
async def alice(place: Place) -> Kube:
    """A person who labels nodes with kubectl."""
    return place.kube(user=ALICE, manager="kubectl-label")


@pytest.fixture
async def widgets(place: Place) -> str:
    """The path of this test's widgets, served."""
    await place.install(definition())
    return WIDGETS.path(namespace=place.namespace)


@pytest.fixture
def key(place: Place) -> str:
    """A node label of this test's own."""
    return f"test.example/{place.prefix}driver"
