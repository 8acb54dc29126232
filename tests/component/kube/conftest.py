"""One test's part of a server, and who is at work there."""

import secrets
from collections.abc import AsyncIterator

import pytest

from libs.kube.client import Kube
from tests.component.kube.sandbox import ALICE, Sandbox, ServerUnderTest
from tests.component.kube.widgets import WIDGETS, definition


@pytest.fixture
async def place(server: ServerUnderTest) -> AsyncIterator[Sandbox]:
    """This test's part of the server."""
    place = Sandbox(server, token=secrets.token_hex(4))
    await place.open()
    yield place
    await place.close()


@pytest.fixture
async def kube(place: Sandbox) -> Kube:
    """Us."""
    return place.kube()


@pytest.fixture
async def node(place: Sandbox) -> str:
    """A node's name."""
    return await place.node("n")


@pytest.fixture
async def alice(place: Sandbox) -> Kube:
    """A person who labels nodes with kubectl."""
    return place.kube(user=ALICE, manager="kubectl-label")


@pytest.fixture
async def widgets(place: Sandbox) -> str:
    """The path of this test's widgets, served."""
    await place.install(definition())
    return WIDGETS.path(namespace=place.namespace)


@pytest.fixture
def key(place: Sandbox) -> str:
    """A node label of this test's own."""
    return f"test.example/{place.prefix}driver"
