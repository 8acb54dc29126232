"""The server with accounts and permissions for every test, with either way to sign in."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.security.world import KeyCredentials, TokenCredentials, World, world


@pytest.fixture(params=["keys", "tokens"])
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    """Yield the world once with static keys, and once with a running sign-in."""
    credentials = KeyCredentials() if request.param == "keys" else TokenCredentials(tmp_path)
    async with world(credentials) as environment:
        yield environment


@pytest.fixture
async def with_keys() -> AsyncGenerator[World]:
    """Yield the world with static keys alone."""
    async with world(KeyCredentials()) as environment:
        yield environment


@pytest.fixture
async def with_tokens(tmp_path: Path) -> AsyncGenerator[World]:
    """Yield the world with a running sign-in alone."""
    async with world(TokenCredentials(tmp_path)) as environment:
        yield environment
