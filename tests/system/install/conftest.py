"""Real nodes on which nothing is installed."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from libs.testing.go_build import NotBuilt
from libs.testing.helm import find_helm
from libs.testing.image.build import is_quick
from libs.testing.image.testing import build_testing
from libs.testing.realnodes.ground import find_nodes
from tests.system.install.world import NEXT, VERSION, World, world_of
from tests.workers import WorkerGroup

SEARCH = find_nodes(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests on one worker: nodes take memory, and nearly no time of a processor."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(WorkerGroup.INSTALLATIONS.marker())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """One node."""
    async with _started(tmp_path, nodes=1) as world:
        yield world


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[World]:
    """Two nodes."""
    async with _started(tmp_path, nodes=2) as world:
        yield world


@asynccontextmanager
async def _started(folder: Path, *, nodes: int) -> AsyncGenerator[World]:
    helm = find_helm(os.environ)
    if helm is None:
        pytest.skip("Helm is not built: run `make helm`")
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    try:
        archive = await asyncio.to_thread(
            lambda: build_testing(os.environ, versions=(VERSION, NEXT), report=lambda _: None)
        )
    except NotBuilt as error:
        pytest.skip(str(error))
    async with world_of(SEARCH, archive, helm, folder, nodes=nodes) as world:
        yield world
