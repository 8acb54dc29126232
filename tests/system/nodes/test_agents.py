"""Our agents on real nodes, from our image, as the pods that the driver service renders."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.testing.image.build import build, is_quick
from libs.testing.realnodes.ground import Ground
from tests.system.nodes.installation import NAMESPACE, Installation, installed
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.usage import cpu_seconds, proportional_mib

LABELS = (
    "nvidia.com/gpu.present=true",
    "nvidia.com/gpu.deploy.operator-validator=true",
)
"""What discovery writes on a node with GPUs, which these have not."""
AGENTS = ("sluice-discovery-agent", "sluice-driver-agent", "sluice-validator-agent")
AT_REST = 20.0


@pytest.fixture
async def installation(
    ground: Ground, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Installation]:
    """Sluice without a policy, and its image on every node."""
    if not is_quick(os.environ):
        pytest.skip("no image (`make image`)")
    archive = await asyncio.to_thread(build, os.environ, report=lambda _: None)
    for node in ground.nodes:
        await node.import_image(archive)
        await kubectl.run("label", "--overwrite", f"node/{node.name}", *LABELS)
    async with installed(ground, kubectl, tmp_path) as installation:
        yield installation


async def agent_pods(kubectl: Kubectl, *, wanted: int) -> list[dict[str, Any]]:
    """Return the agents' pods once they all are Ready."""
    deadline = time.monotonic() + 30.0
    while True:
        pods = (await kubectl.get("pods", "--namespace", NAMESPACE))["items"]
        if len([pod for pod in pods if is_ready(pod)]) == wanted:
            return pods
        if time.monotonic() > deadline:
            raise AssertionError(await story(kubectl, pods))
        await asyncio.sleep(0.2)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return {"type": "Ready", "status": "True"}.items() <= {
        key: value
        for condition in conditions
        if condition["type"] == "Ready"
        for key, value in condition.items()
    }.items()


async def story(kubectl: Kubectl, pods: list[dict[str, Any]]) -> str:
    """Return why pods are not Ready, as a person would look for it."""
    texts = [await kubectl.run("get", "pods", "--namespace", NAMESPACE)]
    for pod in pods:
        name = pod["metadata"]["name"]
        logs = ("logs", "--namespace", NAMESPACE, name, "--tail=15", "--ignore-errors")
        texts.append(f"{name}:\n{await kubectl.run(*logs)}")
    return "\n".join(texts)


async def test_agents_are_ready_as_rendered(
    ground: Ground, kubectl: Kubectl, installation: Installation
) -> None:
    await installation.apply_policy(dcgmExporter={"enabled": False})
    started = time.monotonic()
    pods = await agent_pods(kubectl, wanted=len(AGENTS) * len(ground.nodes))
    print(f"\nagents: all Ready {time.monotonic() - started:.1f} s after the policy")
    owners = sorted(pod["metadata"]["ownerReferences"][0]["name"] for pod in pods)
    assert owners == sorted(AGENTS * len(ground.nodes))
    for pod in pods:
        (container,) = pod["status"]["containerStatuses"]
        assert container["restartCount"] == 0
    node = ground.nodes[0]
    here = {
        pod["metadata"]["uid"]: pod["metadata"]["name"]
        for pod in pods
        if pod["spec"]["nodeName"] == node.name
    }
    before = cpu_seconds(node, here)
    await asyncio.sleep(AT_REST)
    after = cpu_seconds(node, here)
    memory = proportional_mib(node, here)
    for uid, name in here.items():
        used = (after[uid] - before[uid]) / AT_REST
        print(f"{name}: {memory[uid]:.0f} MiB (PSS), {used:.2%} of a core at rest")
    print(f"together: {sum(memory.values()):.0f} MiB")
    assert all(memory.values())
