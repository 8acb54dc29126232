"""An API server to write to as somebody who may do everything."""

import pytest

from libs.kube.transport import Transport
from tests.component.kube.places import ADMIN, Server


@pytest.fixture
async def wire(server: Server) -> Transport:
    """It ends with the test."""
    return server.wire(ADMIN)
