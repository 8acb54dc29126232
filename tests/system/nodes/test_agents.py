"""Our agents on real nodes, from our image, as the pods that the driver service renders."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.testing.image.build import build, is_quick
from libs.testing.nvml import CudaResult
from libs.testing.nvml.profiles import H100_80GB
from libs.testing.realnodes.gpus import NodeGpus
from libs.testing.realnodes.ground import Ground
from libs.testing.realnodes.node import Node
from tests.summary import Figure
from tests.support import eventually
from tests.system.nodes.agents import (
    AGENTS,
    Object,
    agent_of,
    ready_after,
    until_agents_are_ready,
    until_services_lead,
)
from tests.system.nodes.driver_root import SMI_SAYS, driver_root
from tests.system.nodes.foreign_plugin import be_replaced_by_another
from tests.system.nodes.installation import NAMESPACE, POLICY, Installation, installed
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.metrics import gpus_with_metrics
from tests.system.nodes.nri import give_devices_by_policy
from tests.system.nodes.test_cdi import with_gpu
from tests.system.nodes.usage import cpu_seconds, proportional_mib, waiting_seconds
from tests.system.nodes.validation_pod import WITH_WORKLOAD, confirm, end_validation, forget

LOOK = "ls /dev | grep nvidia; nvidia-smi"
CONFIGS = "plugin-configs"
SHARING = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": CONFIGS, "namespace": NAMESPACE},
    "data": {
        "twice": "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
    },
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
SETTLED_AFTER = 5.0
AT_REST = 10.0


@pytest.fixture
async def machines(ground: Ground, kubectl: Kubectl) -> AsyncIterator[list[NodeGpus]]:
    """The GPUs of the nodes, of which each has our image."""
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    archive = await asyncio.to_thread(build, os.environ, report=lambda _: None)
    await asyncio.gather(*(node.import_image(archive) for node in ground.nodes))
    machines = [await NodeGpus.insert(node, H100_80GB) for node in ground.nodes]
    yield machines
    for machine in machines:
        await machine.remove()


@pytest.fixture
async def installation(
    machines: list[NodeGpus], ground: Ground, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Installation]:
    """Sluice without a policy. The first node has the root of a driver container."""
    async with (
        driver_root(ground.nodes[0], machines[0]),
        installed(ground, kubectl, tmp_path) as installation,
    ):
        yield installation


@pytest.mark.soak(
    "the agents of two nodes take 50 CPU seconds; in each run Helm brings them up on a real node,"
    " where they are Ready without a restart and serve metrics, and an upgrade commands them on two"
)
async def test_agents_are_ready_as_rendered(
    ground: Ground,
    kubectl: Kubectl,
    machines: list[NodeGpus],
    installation: Installation,
    figure: Figure,
) -> None:
    leads_after = await until_services_lead(installation)
    figure(f"the cluster roles of driver and discovery led {leads_after:.1f} s after their start")
    await installation.apply_policy(validator=WITH_WORKLOAD)
    pods, links = await until_agents_are_ready(installation)
    for name, after in links.items():
        figure(f"{name}: {after:.1f} s after the policy")
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert all("httpGet" in container[probe] for probe in PROBES)
        assert container["resources"]["limits"].keys() == {"memory"}
        (status,) = pod["status"]["containerStatuses"]
        assert status["restartCount"] == 0
    seconds = [after for pod in pods if (after := ready_after(pod)) is not None]
    figure(f"agents were Ready {min(seconds):.0f} to {max(seconds):.0f} s after their creation")
    await print_usage(ground.nodes[0], pods, figure)
    uuids = sorted(gpu.uuid for gpu in machines[0].stand_in.gpus)
    assert await gpus_with_metrics(kubectl, ground.nodes[0].name) == uuids
    await confirm_by_pods(kubectl, ground.nodes[0], machines[0])
    await become_ready(kubectl, ground, machines)
    await share_gpus(kubectl, ground.nodes[0], machines[0], installation)
    await be_replaced_by_another(ground, kubectl, installation)


async def print_usage(node: Node, pods: list[Object], figure: Figure) -> None:
    """Print what the agents of a node use at rest."""
    here = {
        pod["metadata"]["uid"]: agent_of(pod)
        for pod in pods
        if pod["spec"]["nodeName"] == node.name
    }
    assert sorted(here.values()) == list(AGENTS)
    await asyncio.sleep(SETTLED_AFTER)
    before, waited = cpu_seconds(node, here), waiting_seconds(node, here)
    await asyncio.sleep(AT_REST)
    after, waits = cpu_seconds(node, here), waiting_seconds(node, here)
    memory = proportional_mib(node, here)
    polls = {uid: (waits[uid] - waited[uid]) / AT_REST for uid in here}
    used = {uid: (after[uid] - before[uid]) / AT_REST - polls[uid] for uid in here}
    for uid, name in here.items():
        figure(f"{name}: {memory[uid]:.0f} MiB (PSS), {used[uid]:.2%} of a core at rest")
    figure(
        f"all agents of a node: {sum(memory.values()):.0f} MiB (PSS),"
        f" {sum(used.values()):.2%} of a core at rest, and beside that"
        f" {sum(polls.values()):.2%} for loops of the stand-in that wait for XIDs"
    )
    assert all(memory.values())


async def confirm_by_pods(kubectl: Kubectl, node: Node, machine: NodeGpus) -> None:
    """A pod that computes on its GPU confirms a validation; one that computes wrong does not."""
    await until_offered(kubectl, node, machine)
    passed = await confirm(kubectl, node.name, op=1)
    assert (passed.passed, passed.message) == (True, "a pod that asked for a GPU computed on it")
    machine.stand_in.fail("cuLaunchKernel", CudaResult.WRONG)
    failed = await confirm(kubectl, node.name, op=2)
    machine.stand_in.restore()
    said = re.fullmatch(r"GPU ([-0-9a-f]+) computes wrong: 1 values differ", failed.message)
    assert said, failed
    assert f"GPU-{said[1]}" in {gpu.uuid for gpu in machine.stand_in.gpus}
    assert failed.passed is False


async def become_ready(kubectl: Kubectl, ground: Ground, machines: list[NodeGpus]) -> None:
    """The policy is ready once a pod that asks for a GPU gets one on every node."""
    nodes, (first, other) = ground.nodes, ground.nodes
    await end_validation(kubectl, *(node.name for node in nodes))
    policy = f"clusterpolicy/{POLICY}"

    async def is_the_only_one_named() -> bool:
        status = (await kubectl.get(policy))["status"]
        said = "\n".join(each["message"] for each in status["conditions"])
        lacks = [f"on {node.name}: a pod that asks for a GPU gets none" for node in (first, other)]
        return status["state"] == "notReady" and [each in said for each in lacks] == [False, True]

    await eventually(is_the_only_one_named, within=180, every=0.5)
    async with driver_root(other, machines[1]):
        await kubectl.wait("jsonpath={.status.state}=ready", policy)
        names = [f"asks-on-{node.name}" for node in nodes]
        await kubectl.apply(
            *(with_gpu(name, node) for name, node in zip(names, nodes, strict=True))
        )
        found = [f"pod/{name}" for name in names]
        await kubectl.wait("condition=Ready", *found)
        for name in names:
            said = (await kubectl.run("exec", name, "--", "sh", "-c", LOOK)).split()
            assert re.fullmatch(rf"nvidia-uvm nvidia\d nvidiactl {SMI_SAYS}", " ".join(said))
        await kubectl.run("delete", *found)
    await forget(kubectl, *(node.name for node in nodes))


async def share_gpus(
    kubectl: Kubectl, node: Node, machine: NodeGpus, installation: Installation
) -> None:
    """The kubelet can give each GPU twice, and the labels of the node say so."""
    await kubectl.apply(SHARING)
    config = {"name": CONFIGS, "default": "twice"}
    await give_devices_by_policy(node, kubectl, installation, devicePlugin={"config": config})
    await until_offered(kubectl, node, machine, times=2)
    labels = (await kubectl.get(f"node/{node.name}"))["metadata"]["labels"]
    ends = ("product", "count", "replicas", "sharing-strategy")
    shown = [labels[f"nvidia.com/gpu.{end}"] for end in ends]
    count = str(len(machine.stand_in.gpus))
    assert shown == ["NVIDIA-H100-80GB-HBM3-SHARED", count, "2", "time-slicing"]


async def until_offered(kubectl: Kubectl, node: Node, machine: NodeGpus, *, times: int = 1) -> None:
    """Wait until the kubelet can give all GPUs of a node to pods, each so many times."""
    count = times * len(machine.stand_in.gpus)
    await kubectl.wait(
        rf"jsonpath={{.status.allocatable.nvidia\.com/gpu}}={count}", f"node/{node.name}"
    )
