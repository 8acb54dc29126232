"""The guarded server of every test here."""

from collections.abc import AsyncIterator

import pytest

from tests.security.world import World, world


@pytest.fixture
async def guarded() -> AsyncIterator[World]:
    async with world() as made:
        yield made
