"""Our agents on real nodes, from our image, as the pods that the driver service renders."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from libs.testing.image.build import build, is_quick
from libs.testing.nvml.profiles import H100_80GB
from libs.testing.realnodes.gpus import NodeGpus
from libs.testing.realnodes.ground import Ground
from tests.system.nodes.conftest import FIGURE
from tests.system.nodes.installation import NAMESPACE, Installation, installed
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.usage import cpu_seconds, proportional_mib

AGENTS = (
    "sluice-device-plugin",
    "sluice-discovery-agent",
    "sluice-driver-agent",
    "sluice-telemetry-agent",
    "sluice-validator-agent",
)
WITHIN = 60.0
SETTLED_AFTER = 10.0
AT_REST = 20.0

Pod = dict[str, Any]
Figure = Callable[[str], None]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Print a line at the end of the run."""
    return lambda line: record_property(FIGURE, line)


@pytest.fixture
async def installation(
    ground: Ground, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Installation]:
    """Sluice without a policy, and its image on every node; each has GPUs."""
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    archive = await asyncio.to_thread(build, os.environ, report=lambda _: None)
    for node in ground.nodes:
        await node.import_image(archive)
    machines = [await NodeGpus.insert(node, H100_80GB) for node in ground.nodes]
    async with installed(ground, kubectl, tmp_path) as installation:
        yield installation
    for machine in machines:
        await machine.remove()


def agent_of(pod: Pod) -> str:
    return pod["metadata"]["ownerReferences"][0]["name"]


def ready_after(pod: Pod) -> float | None:
    """Return the seconds from the pod's creation until it was Ready; None if it is not."""
    for condition in pod["status"].get("conditions", []):
        if (condition["type"], condition["status"]) == ("Ready", "True"):
            times = (condition["lastTransitionTime"], pod["metadata"]["creationTimestamp"])
            ready, created = map(datetime.fromisoformat, times)
            return (ready - created).total_seconds()
    return None


async def until_agents_are_ready(kubectl: Kubectl, *, nodes: int) -> list[Pod]:
    """Return the agents' pods once they all are Ready."""
    wanted = Counter(dict.fromkeys(AGENTS, nodes))
    deadline = asyncio.get_running_loop().time() + WITHIN
    while True:
        pods = (await kubectl.get("pods", "--namespace", NAMESPACE))["items"]
        if Counter(agent_of(pod) for pod in pods if ready_after(pod) is not None) == wanted:
            return pods
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(await story(kubectl, pods))
        await asyncio.sleep(0.2)


async def story(kubectl: Kubectl, pods: list[Pod]) -> str:
    """Return why pods are not Ready, as a person would look for it."""
    texts = [await kubectl.run("get", "pods", "--namespace", NAMESPACE)]
    for pod in pods:
        name = pod["metadata"]["name"]
        logs = ("logs", "--namespace", NAMESPACE, name, "--tail=15", "--ignore-errors")
        texts.append(f"{name}:\n{await kubectl.run(*logs)}")
    return "\n".join(texts)


@pytest.mark.timeout(300)
async def test_agents_are_ready_as_rendered(
    ground: Ground, kubectl: Kubectl, installation: Installation, figure: Figure
) -> None:
    await installation.apply_policy()
    pods = await until_agents_are_ready(kubectl, nodes=len(ground.nodes))
    for pod in pods:
        (container,) = pod["status"]["containerStatuses"]
        assert container["restartCount"] == 0
    seconds = [after for pod in pods if (after := ready_after(pod)) is not None]
    figure(f"agents were Ready {min(seconds):.0f} to {max(seconds):.0f} s after their creation")
    node = ground.nodes[0]
    here = {
        pod["metadata"]["uid"]: agent_of(pod)
        for pod in pods
        if pod["spec"]["nodeName"] == node.name
    }
    assert sorted(here.values()) == list(AGENTS)
    await asyncio.sleep(SETTLED_AFTER)
    before = cpu_seconds(node, here)
    await asyncio.sleep(AT_REST)
    after = cpu_seconds(node, here)
    memory = proportional_mib(node, here)
    for uid, name in here.items():
        used = (after[uid] - before[uid]) / AT_REST
        figure(f"{name}: {memory[uid]:.0f} MiB (PSS), {used:.2%} of a core at rest")
    used = (sum(after.values()) - sum(before.values())) / AT_REST
    figure(f"all agents of a node: {sum(memory.values()):.0f} MiB (PSS), {used:.2%} of a core")
    assert all(memory.values())
