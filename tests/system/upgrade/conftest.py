"""Two real nodes for an upgrade: their API server's audit log has nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.testing.go_build import NotBuilt
from libs.testing.image.build import is_quick
from libs.testing.image.testing import build_testing
from libs.testing.realnodes.ground import find_nodes
from tests.run.plan import GroundKind
from tests.summary import GROUND
from tests.system.upgrade.world import NEW, OLD, World, world_of

SEARCH = find_nodes(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests on one worker: nodes take memory, and nearly no time of a processor."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(GroundKind.NODE_UPGRADES.marker())
            item.user_properties.append((GROUND, f"Nodes: {SEARCH.explanation}"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Sluice without a policy, on nodes whose GPUs have no driver."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    try:
        archive = await asyncio.to_thread(
            lambda: build_testing(os.environ, versions=(OLD, NEW), report=lambda _: None)
        )
    except NotBuilt as error:
        pytest.skip(str(error))
    async with world_of(SEARCH, archive, tmp_path) as world:
        yield world
