"""Real nodes on which nothing is installed, and one on which Helm has installed Sluice."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.testing.go_build import NotBuilt
from libs.testing.helm import find_helm
from libs.testing.image.build import is_quick
from libs.testing.image.testing import build_testing
from libs.testing.realnodes.ground import find_nodes
from tests.grounds import standing, starting
from tests.run.plan import GroundKind
from tests.system.install.release import Release, installed
from tests.system.install.world import NEXT, VERSION, World, world_of

SEARCH = find_nodes(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests on one worker: nodes take memory, and nearly no time of a processor."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(GroundKind.INSTALLATIONS.marker())


@pytest.fixture(scope="session")
def world(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[World]:
    """One node for all tests of what Helm does."""
    stack = AsyncExitStack()
    # One loop for both: another one would end what was begun on the first.
    with asyncio.Runner() as runner:
        with starting(request):
            world = runner.run(_start(stack, tmp_path_factory.mktemp("install"), nodes=1))
        with standing(request, world.ground.problem):
            yield world
        runner.run(stack.aclose())


@pytest.fixture(scope="session")
def release(world: World, request: pytest.FixtureRequest) -> Release:
    """Sluice as Helm installed it on that node, until a test removes it."""
    with starting(request):
        return asyncio.run(installed(world))


@pytest.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[World]:
    """One node for a test alone."""
    async with AsyncExitStack() as stack:
        yield await _start(stack, tmp_path, nodes=1)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[World]:
    """Two nodes."""
    async with AsyncExitStack() as stack:
        yield await _start(stack, tmp_path, nodes=2)


async def _start(stack: AsyncExitStack, folder: Path, *, nodes: int) -> World:
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
    return await stack.enter_async_context(world_of(SEARCH, archive, helm, folder, nodes=nodes))
