"""Fixtures: a sandbox of the server for each test, and clients of it."""

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.component.kube.sandbox import ALICE, Kube, Sandbox, ServerUnderTest
from tests.component.kube.widgets import WIDGETS, definition


@pytest.fixture
async def sandbox(server: ServerUnderTest) -> AsyncIterator[Sandbox]:
    """Return the part of the server that belongs to this test."""
    sandbox = Sandbox(server, token=secrets.token_hex(4))
    await sandbox.open()
    yield sandbox
    await sandbox.close()


@pytest.fixture
async def kube(sandbox: Sandbox) -> Kube:
    """Return a client that acts as Sluice."""
    return sandbox.kube()


@pytest.fixture
async def node(sandbox: Sandbox) -> str:
    """Register a node; return its name."""
    return await sandbox.node("n")


@pytest.fixture
async def alice(sandbox: Sandbox) -> Kube:
    """Return a client of a person with kubectl."""
    return sandbox.kube(user=ALICE, manager="kubectl-label")


@pytest.fixture
async def widgets(sandbox: Sandbox) -> str:
    """Install the custom kind; return the path of this test's widgets."""
    await sandbox.install(definition())
    return WIDGETS.path(namespace=sandbox.namespace)


@pytest.fixture
def key(sandbox: Sandbox) -> str:
    """Return a node label that only this test uses."""
    return f"test.example/{sandbox.prefix}driver"
