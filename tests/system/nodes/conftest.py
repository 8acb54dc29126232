"""Two real nodes for all tests of a session."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from libs.testing.realnodes.ground import Ground, NodeSearch, find_nodes
from tests.summary import GROUND
from tests.system.nodes.kubectl import Kubectl
from tests.workers import WorkerGroup

SEARCH = find_nodes(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the shared nodes on one worker: each process would start its own."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "search" in names:
            group = WorkerGroup.NODES if "ground" in names else WorkerGroup.INSTALLATIONS
            item.add_marker(group.marker())
            item.user_properties.append((GROUND, f"Nodes: {SEARCH.explanation}"))


@pytest.fixture(scope="session")
def search() -> NodeSearch:
    """What real nodes need, where it is there."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    return SEARCH


@pytest.fixture(scope="session")
def ground(search: NodeSearch) -> Iterator[Ground]:
    """The control plane and its nodes; a test may break a node, and leaves it Ready."""
    ground = asyncio.run(Ground.start(search, nodes=2))
    yield ground
    asyncio.run(ground.stop())


@pytest.fixture
async def kubectl(ground: Ground) -> Kubectl:
    """The administrator's kubectl, once both nodes are Ready."""
    kubectl = Kubectl(ground.kube)
    for node in ground.nodes:
        await kubectl.wait("create", f"node/{node.name}")
        await kubectl.wait("condition=Ready", f"node/{node.name}")
    return kubectl
