"""Fixtures: a sandbox of the server for each test, and clients of it."""

import secrets
from collections.abc import AsyncIterator

import pytest

from libs.kube.client import Kube
from tests.component.kube.sandbox import ALICE, Sandbox, ServerUnderTest
from tests.component.kube.widgets import WIDGETS, definition


@pytest.fixture
async def sandbox(server: ServerUnderTest) -> AsyncIterator[Sandbox]:
    """The part of the server that belongs to this test."""
    sandbox = Sandbox(server, token=secrets.token_hex(4))
    await sandbox.open()
    yield sandbox
    await sandbox.close()


@pytest.fixture
async def kube(sandbox: Sandbox) -> Kube:
    """The client of Sluice."""
    return sandbox.kube()


@pytest.fixture
async def node(sandbox: Sandbox) -> str:
    """The name of a registered node."""
    return await sandbox.node("n")


@pytest.fixture
async def alice(sandbox: Sandbox) -> Kube:
    """A person who labels nodes with kubectl."""
    return sandbox.kube(user=ALICE, manager="kubectl-label")


@pytest.fixture
async def widgets(sandbox: Sandbox) -> str:
    """The path of this test's widgets, served."""
    await sandbox.install(definition())
    return WIDGETS.path(namespace=sandbox.namespace)


@pytest.fixture
def key(sandbox: Sandbox) -> str:
    """A node label that only this test uses."""
    return f"test.example/{sandbox.prefix}driver"
