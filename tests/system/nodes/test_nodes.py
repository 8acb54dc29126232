"""Real nodes: pods run, and nodes are broken and come back."""

import signal
from collections.abc import AsyncIterator

import pytest

from libs.testing.realnodes.ground import Ground
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod


@pytest.fixture
async def pods(ground: Ground, kubectl: Kubectl) -> AsyncIterator[list[str]]:
    """A Ready pod on each node."""
    names = [f"pod/on-{node.name}" for node in ground.nodes]
    await kubectl.apply(*(pod(f"on-{node.name}", node.name) for node in ground.nodes))
    await kubectl.wait("condition=Ready", *names)
    yield names
    await kubectl.run("delete", *names)


async def test_pods_run_and_reach_each_other_and_the_api_server(
    ground: Ground, kubectl: Kubectl, pods: list[str]
) -> None:
    assert await kubectl.run("logs", pods[0]) == "started\n"
    other = (await kubectl.get(pods[1]))["status"]["podIP"]
    await kubectl.run("exec", pods[0], "--", "ping", "-c1", "-W5", other)
    limit = await kubectl.run("exec", pods[0], "--", "cat", "/proc/self/cgroup")
    assert "/kubepods/" in limit
    await kubectl.run("exec", pods[0], "--", "sh", "-c", "echo | nc -w5 10.0.0.1 443")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
async def test_pods_survive_their_kubelet_and_containerd(
    by: signal.Signals, ground: Ground, kubectl: Kubectl, pods: list[str]
) -> None:
    node = ground.nodes[0]
    before = (await kubectl.get(pods[0]))["status"]["containerStatuses"]
    await node.restart_kubelet(by)
    await node.restart_containerd(by)
    await kubectl.succeeds("exec", pods[0], "--", "true")
    assert (await kubectl.get(pods[0]))["status"]["containerStatuses"] == before


async def test_after_a_power_cut_a_node_has_another_boot_id_and_the_same_disk(
    ground: Ground, kubectl: Kubectl, pods: list[str]
) -> None:
    node = ground.nodes[1]
    before = node.boot_id
    await node.run("sh", "-c", "echo kept > /var/lib/sluice/file; echo lost > /root/file")
    await ground.thread.run(node.power_cut())
    assert node.boot_id != before
    path = "jsonpath={.status.nodeInfo.bootID}=" + node.boot_id
    await kubectl.wait(path, f"node/{node.name}")
    await kubectl.wait("jsonpath={.status.containerStatuses[0].restartCount}=1", pods[1])
    await kubectl.wait("condition=Ready", f"node/{node.name}", pods[1])
    assert await node.run("cat", "/var/lib/sluice/file") == "kept\n"
    assert "No such file" in await node.run("sh", "-c", "cat /root/file 2>&1 || true")
