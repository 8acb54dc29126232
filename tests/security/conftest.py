"""The server with accounts and permissions for every test."""

from collections.abc import AsyncIterator

import pytest

from tests.security.world import World, world


@pytest.fixture
async def guarded() -> AsyncIterator[World]:
    async with world() as environment:
        yield environment
