"""The server with accounts and permissions for every test, and sign-in on it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from libs.testing.sign_in import TokenSignIn
from tests.security.identities import IDENTITIES
from tests.security.world import World, world


@pytest.fixture
def sign_in(tmp_path: Path) -> TokenSignIn:
    return TokenSignIn(IDENTITIES, tmp_path)


@pytest.fixture
async def guarded(sign_in: TokenSignIn) -> AsyncGenerator[World]:
    async with world(sign_in) as environment:
        yield environment
