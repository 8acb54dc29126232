"""Pods on a real node get devices by annotation, from the plugin of NRI in a pod of our image."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from libs.testing.image.build import IMAGE, build, is_quick
from libs.testing.realnodes.build import Containerd
from libs.testing.realnodes.gpus import HOST
from libs.testing.realnodes.ground import Ground, NodeSearch
from libs.testing.realnodes.node import Node
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

SPEC = "/var/run/cdi/nvidia.com-gpu.json"
DEVICE = "nvidia.com/gpu=GPU-1"
ALLOWED, OTHER = "team-a", "team-b"
WITHIN = 60.0
Start = Callable[[], Awaitable[None]]
PLUGIN = f"""
import asyncio
from libs.host.machine import ThreadOffload
from libs.host.nri.plugin import NriPlugin
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from services.driver.node.annotations import AnnotatedDevices

async def main():
    injector = AnnotatedDevices(gpus=["{ALLOWED}"], management=[], unavailable=lambda: "")
    async with ThreadOffload("nri") as offload:
        plugin = NriPlugin(
            injector, tree=Tree("{HOST}"), offload=offload, clock=SystemClock()
        )
        running, said = asyncio.create_task(plugin.run()), None
        while not running.done():
            if plugin.problem != said:
                said = plugin.problem
                print(said or "REGISTERED", flush=True)
            await asyncio.sleep(0.01)
        await running

asyncio.run(main())
"""
NRI = 'plugins."io.containerd.nri.v1.nri"'
VALIDATED = f"version = 3\n[{NRI}.default_validator]\nenable = true\n"
DISABLED = f"version = 3\n[{NRI}]\ndisable = true\n"
CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/nri.toml"
IN_1_7 = f"""
sed -i 's/^  restrict_oom_score_adj = true$/&\\n  enable_cdi = true/' {CONFIG}
printf '[{NRI}]\\ndisable = false\\n' >> {CONFIG}
"""
LOOK = 'echo "$GIVEN"; ls /dev/nvidia0 2>/dev/null && : < /dev/nvidia0 && echo open; exit 0'


def annotated(name: str, node: Node, namespace: str = ALLOWED) -> dict[str, Any]:
    wanted = pod(name, node.name)
    wanted["metadata"] |= {
        "namespace": namespace,
        "annotations": {"nvidia.cdi.k8s.io/container.main": DEVICE},
    }
    return wanted


def plugin_pod(node: Node) -> dict[str, Any]:
    """Return a pod with the node's root, as the driver agent has it."""
    wanted = pod("nri", node.name)
    container = wanted["spec"]["containers"][0]
    container |= {
        "image": IMAGE,
        "command": ["python3", "-c", PLUGIN],
        "resources": {},
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"}
        ],
    }
    wanted["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    return wanted


async def prepare(node: Node, kubectl: Kubectl) -> None:
    """Give a node our image and a CDI spec of one device, and the cluster two namespaces."""
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    await node.import_image(await asyncio.to_thread(build, os.environ, report=lambda _: None))
    edits = {
        "env": ["GIVEN=GPU-1"],
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/null"}],
    }
    devices = [{"name": "GPU-1", "containerEdits": edits}]
    spec = json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices})
    await node.run("sh", "-c", f"mkdir -p /var/run/cdi && echo '{spec}' > {SPEC}")
    for name in (ALLOWED, OTHER):
        await kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.fixture
async def node(ground: Ground, kubectl: Kubectl) -> AsyncIterator[Node]:
    node = ground.nodes[0]
    await prepare(node, kubectl)
    yield node
    await node.run("rm", "-f", SPEC)
    for name in (ALLOWED, OTHER):
        await kubectl.run("delete", "pods", "--all", "--namespace", name)


@pytest.fixture
async def configure(node: Node) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Start containerd with more configuration."""

    async def configure(text: str) -> None:
        await node.run("sh", "-c", f"mkdir -p /etc/containerd/conf.d && echo '{text}' > {DROP_IN}")
        await node.restart_containerd()

    yield configure
    await node.run("rm", "-f", DROP_IN)
    await node.restart_containerd()


@pytest.fixture
async def start_plugin(node: Node, kubectl: Kubectl) -> AsyncIterator[Start]:
    """Start the plugin; return when it is registered."""

    async def start() -> None:
        await start_on(node, kubectl)
        await until_registered(kubectl, times=1)

    yield start
    await kubectl.run("delete", "pod/nri", "--ignore-not-found")


async def start_on(node: Node, kubectl: Kubectl) -> None:
    await kubectl.apply(plugin_pod(node))
    await kubectl.wait("condition=Ready", "pod/nri")


async def until_registered(kubectl: Kubectl, *, times: int) -> None:
    await until_said(kubectl, "REGISTERED", times=times)


async def until_said(kubectl: Kubectl, text: str, *, times: int = 1) -> None:
    """Wait until the plugin has written this so often."""
    deadline = asyncio.get_running_loop().time() + WITHIN
    while True:
        said = await kubectl.run("logs", "nri")
        if said.count(text) >= times:
            return
        assert asyncio.get_running_loop().time() < deadline, said
        await asyncio.sleep(0.2)


async def seen(kubectl: Kubectl, name: str, namespace: str = ALLOWED) -> list[str]:
    """Return what a container sees of the device, once it runs."""
    await kubectl.wait("condition=Ready", f"pod/{name}", "--namespace", namespace)
    said = await kubectl.run("exec", "--namespace", namespace, name, "--", "sh", "-c", LOOK)
    return said.split()


async def refusal(kubectl: Kubectl, name: str, namespace: str) -> str:
    """Return why a container is not created, as its pod says it."""
    waiting = ".status.containerStatuses[0].state.waiting"
    path = f"jsonpath={{{waiting}.reason}}=CreateContainerError"
    await kubectl.wait(path, f"pod/{name}", "--namespace", namespace)
    found = await kubectl.get(f"pod/{name}", "--namespace", namespace)
    return found["status"]["containerStatuses"][0]["state"]["waiting"]["message"]


GIVEN = ["GPU-1", "/dev/nvidia0", "open"]


@pytest.mark.timeout(400)
async def test_pods_get_a_device_by_annotation_where_it_is_allowed(
    node: Node, kubectl: Kubectl, start_plugin: Start
) -> None:
    await start_plugin()
    by_environment = pod("by-environment", node.name)
    by_environment["metadata"]["namespace"] = ALLOWED
    by_environment["spec"]["containers"][0]["env"] = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    ]
    unknown = annotated("unknown", node)
    unknown["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=GPU-2"}
    await kubectl.apply(
        annotated("allowed", node), annotated("refused", node, OTHER), by_environment, unknown
    )
    assert await seen(kubectl, "allowed") == GIVEN
    assert await seen(kubectl, "by-environment") == []
    said = await refusal(kubectl, "refused", OTHER)
    assert "which pods of the namespace team-b may not have: list the namespace in" in said
    assert "GPU-2" in await refusal(kubectl, "unknown", ALLOWED)

    await node.restart_containerd()
    await until_registered(kubectl, times=2)
    await kubectl.apply(annotated("after-containerd", node))
    assert await seen(kubectl, "after-containerd") == GIVEN

    await kubectl.run("delete", "pod/nri", "--grace-period=0", "--force")
    await kubectl.apply(annotated("without-plugin", node, OTHER))
    assert await seen(kubectl, "without-plugin", OTHER) == [], "created, without the device"
    await start_plugin()
    await kubectl.apply(annotated("after-plugin", node))
    assert await seen(kubectl, "after-plugin") == GIVEN


@pytest.mark.timeout(400)
async def test_pods_that_require_the_plugin_wait_for_it(
    node: Node,
    kubectl: Kubectl,
    start_plugin: Start,
    configure: Callable[[str], Awaitable[None]],
) -> None:
    """What docs/compatibility.md says to those for whom a container may not start without."""
    await configure(VALIDATED)
    waiting = annotated("waiting", node)
    required = {"required-plugins.noderesource.dev/container.main": '["sluice"]'}
    waiting["metadata"]["annotations"] |= required
    await kubectl.apply(waiting)
    assert 'required plugin "sluice"' in await refusal(kubectl, "waiting", ALLOWED)
    await start_plugin()
    assert await seen(kubectl, "waiting") == GIVEN


@pytest.mark.timeout(400)
async def test_a_runtime_without_nri_is_named(
    node: Node,
    kubectl: Kubectl,
    start_plugin: Start,
    configure: Callable[[str], Awaitable[None]],
) -> None:
    await start_plugin()
    await configure(DISABLED)
    await until_said(kubectl, "NRI is disabled in the configuration of the container runtime")
    await configure("")
    await until_registered(kubectl, times=2)


@pytest.mark.timeout(500)
async def test_containerd_1_7_gives_devices_once_it_is_configured(search: NodeSearch) -> None:
    if not search.programs.containerd(Containerd.V1_7).is_dir():
        pytest.skip("no containerd 1.7: run `make node`")
    ground = await Ground.start(search, nodes=1, containerd=Containerd.V1_7)
    try:
        (node,) = ground.nodes
        kubectl = Kubectl(ground.kube)
        await kubectl.wait("create", f"node/{node.name}")
        await kubectl.wait("condition=Ready", f"node/{node.name}", timeout=120)
        await prepare(node, kubectl)
        for namespace in ("default", ALLOWED, OTHER):
            await kubectl.wait("create", "serviceaccount/default", "--namespace", namespace)
        await start_on(node, kubectl)
        await until_said(kubectl, "there is no socket /var/run/nri/nri.sock: NRI is disabled")
        await node.run("sh", "-c", IN_1_7)
        await ground.thread.run(node.restart_containerd())
        await until_registered(kubectl, times=1)
        await kubectl.apply(annotated("allowed", node), annotated("refused", node, OTHER))
        assert await seen(kubectl, "allowed") == GIVEN
        assert "which pods of the namespace team-b" in await refusal(kubectl, "refused", OTHER)
    finally:
        await ground.stop()
