"""Two real nodes for all tests of a session, and one with containerd 1.7."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from libs.testing.realnodes.build import Containerd
from libs.testing.realnodes.ground import Ground, NodeSearch, find_nodes
from libs.testing.realnodes.node import Node
from tests.garbage import collect_grpc
from tests.grounds import standing, starting
from tests.run.plan import GroundKind
from tests.summary import FIGURE, GROUND, Figure
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.leftovers import cgroups_of

__all__ = ["collect_grpc"]

CONFIG = "/etc/containerd/config.toml"
_KEPT = "/root/containerd.toml"
SEARCH = find_nodes(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the shared nodes on one worker: each process would start its own."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "search" in names:
            group = GroundKind.NODES if "ground" in names else GroundKind.INSTALLATIONS
            item.add_marker(group.marker())
            item.user_properties.append((GROUND, f"Nodes: {SEARCH.explanation}"))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Print a line at the end of the run."""
    return lambda line: record_property(FIGURE, line)


@pytest.fixture(scope="session")
def search() -> NodeSearch:
    """What real nodes need, where it is there."""
    if SEARCH.binaries is None:
        pytest.skip(SEARCH.explanation)
    return SEARCH


@pytest.fixture(scope="session")
def ground(search: NodeSearch, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """The control plane and its nodes; a test may break a node, and leaves it Ready."""
    with starting(request):
        ground = asyncio.run(_started(search, nodes=2, containerd=Containerd.V2))
    with standing(request, ground.problem):
        yield ground
    _stop(ground)


@pytest.fixture(scope="session")
def ground_1_7(search: NodeSearch, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A control plane and a node with containerd 1.7, for all tests of a session."""
    if not search.programs.containerd(Containerd.V1_7).is_dir():
        pytest.skip("no containerd 1.7: run `make node`")
    with starting(request):
        ground = asyncio.run(_started(search, nodes=1, containerd=Containerd.V1_7))
    with standing(request, ground.problem):
        yield ground
    _stop(ground)


async def _started(search: NodeSearch, *, nodes: int, containerd: Containerd) -> Ground:
    """Start a ground; return once its nodes are known."""
    ground = await Ground.start(search, nodes=nodes, containerd=containerd)
    kubectl = Kubectl(ground.kube)
    # kubectl waits for the creation of one object only.
    names = (f"node/{node.name}" for node in ground.nodes)
    await asyncio.gather(*(kubectl.wait("create", name) for name in names))
    return ground


def _stop(ground: Ground) -> None:
    """Stop a ground, of which nothing may be left."""
    folders = [node.folder for node in ground.nodes]
    asyncio.run(ground.stop())
    left = [*cgroups_of(*(each.name for each in folders)), *filter(Path.exists, folders)]
    assert left == []


@pytest.fixture
async def node_1_7(ground_1_7: Ground) -> AsyncIterator[Node]:
    """That node, once it can run pods; afterwards it has the same configuration, and no pods."""
    (node,) = ground_1_7.nodes
    kubectl = await administrator(ground_1_7)
    await kubectl.wait("create", "serviceaccount/default")
    before = await node.run("sh", "-c", f"cp {CONFIG} {_KEPT}; cat {CONFIG}")
    yield node
    await kubectl.run("delete", "pods", "--all", "--all-namespaces")
    if await node.run("cat", CONFIG) != before:
        await node.run("cp", _KEPT, CONFIG)
        await node.restart_containerd()


@pytest.fixture
async def kubectl_1_7(ground_1_7: Ground) -> Kubectl:
    """The administrator's kubectl for that node."""
    return Kubectl(ground_1_7.kube)


@pytest.fixture
async def kubectl(ground: Ground) -> Kubectl:
    """The administrator's kubectl, once both nodes are Ready."""
    return await administrator(ground)


async def administrator(ground: Ground) -> Kubectl:
    """Return the administrator's kubectl, once all nodes are Ready."""
    kubectl = Kubectl(ground.kube)
    await kubectl.wait("condition=Ready", *(f"node/{node.name}" for node in ground.nodes))
    return kubectl
