"""An API server connection with full permissions."""

import pytest

from libs.kube.requests import Transport
from tests.component.kube.sandbox import ADMIN, ServerUnderTest


@pytest.fixture
async def wire(server: ServerUnderTest) -> Transport:
    """An admin connection that ends with the test."""
    return server.wire(ADMIN)
