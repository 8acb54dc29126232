"""The plugin of NRI in a pod of our image, and pods with annotations."""

import asyncio
import json
import os
from typing import Any

import pytest

from libs.testing.image.build import IMAGE, build, is_quick
from libs.testing.realnodes.gpus import HOST
from libs.testing.realnodes.node import Node
from tests.system.nodes.driver_root import SMI_SAYS
from tests.system.nodes.installation import NAMESPACE, Installation
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

SPEC = "/var/run/cdi/nvidia.com-gpu.json"
DEVICE = "nvidia.com/gpu=GPU-1"
ALLOWED, OTHER = "team-a", "team-b"
WITHIN = 180.0
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
LOOK = 'echo "$GIVEN"; ls /dev/nvidia0 2>/dev/null && : < /dev/nvidia0 && echo open; exit 0'
GIVEN = ["GPU-1", "/dev/nvidia0", "open"]
"""What `LOOK` says in a container with the device."""


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


async def give_devices_by_policy(
    node: Node, kubectl: Kubectl, installation: Installation, **sections: Any
) -> None:
    """A policy with these sections makes the driver agent a plugin, which gives devices by
    annotation.
    """
    for name in (ALLOWED, OTHER):
        await kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    listed = [{"name": "NRI_GPU_CDI_DEVICE_NAMESPACES", "value": ALLOWED}]
    await installation.apply_policy(
        cdi={"nriPluginEnabled": True}, toolkit={"env": listed}, **sections
    )
    agent = ("daemonset/sluice-driver-agent", "--namespace", NAMESPACE)
    switched = r'jsonpath={..env[?(@.name=="SLUICE_NRI")].value}=true'
    await kubectl.wait(switched, *agent)
    await kubectl.run("rollout", "status", *agent, "--timeout=240s")
    by_agent = annotated("by-agent", node)
    by_agent["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=3"}
    management = annotated("management", node)
    management["metadata"]["annotations"] = {"nvidia.cdi.k8s.io": "management.nvidia.com/gpu=all"}
    await kubectl.apply(by_agent, management)
    await kubectl.wait("condition=Ready", "pod/by-agent", "--namespace", ALLOWED)
    look = ("--", "sh", "-c", "ls /dev | grep nvidia; nvidia-smi")
    said = await kubectl.run("exec", "--namespace", ALLOWED, "by-agent", *look)
    assert said.split() == ["nvidia-uvm", "nvidia3", "nvidiactl", SMI_SAYS]
    refused = await refusal(kubectl, "management", ALLOWED)
    assert "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES in spec.toolkit.env" in refused
    await kubectl.run("delete", "pods", "--all", "--namespace", ALLOWED)
