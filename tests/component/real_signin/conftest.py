"""A fixture: sign-in on the real API server, as an installation sets it up."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.testing.realkube.cluster import RealKube
from tests.component.real_signin.world import RealWorld, real_world


@pytest.fixture
def ground(plane: RealKube) -> RealKube:
    """Select the real control plane only."""
    return plane


@pytest.fixture
async def world(ground: RealKube, tmp_path: Path) -> AsyncIterator[RealWorld]:
    async with real_world(ground, tmp_path) as world:
        yield world
