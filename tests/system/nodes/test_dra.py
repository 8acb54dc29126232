"""Our plugin for claims at a real kubelet and scheduler: pods get the GPUs of their claims.

The program runs beside the node, on a machine whose GPUs a stand-in for NVIDIA's library describes.
"""

import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.identities import Writer
from libs.contracts.reports import Outcome
from libs.host.cdi.published import GPU_FILE
from libs.host.podresources.client import PodResources
from libs.policy.installation import installation_objects, service_account_of
from libs.policy.render.claims import render_device_classes
from libs.testing.realnodes.ground import Ground
from libs.testing.realnodes.node import Node
from tests.component.dra.program import DraPlugin, dra_on
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine
from tests.support import eventually
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.test_device_plugin import GPU, put_spec
from tests.system.nodes.test_nodes import pod

__all__ = ["bench"]

NAMESPACE: Final = "gpu-operator"
API: Final = "resource.k8s.io/v1"
CLASS: Final = "gpu.nvidia.com"
_GIVEN: Final = re.compile(r"^GIVEN_\d+=(GPU-\S+)$", re.MULTILINE)


def write_kubeconfig(given: Path, token: str, file: Path) -> Path:
    config = yaml.safe_load(given.read_text())
    for user in config["users"]:
        user["user"] = {"token": token.strip()}
    file.write_text(yaml.safe_dump(config))
    return file


async def kubeconfig_of(ground: Ground, kubectl: Kubectl, node: Node, file: Path) -> Path:
    """Write a kubeconfig of the plugin's account on a node, with the rights of an installation."""
    await kubectl.apply(
        *(each for each in installation_objects(NAMESPACE) if each["kind"] == "Namespace")
    )
    await kubectl.apply(*installation_objects(NAMESPACE))
    token = await kubectl.run(
        *("create", "token", service_account_of(Writer.DRA), "-n", NAMESPACE),
        *("--bound-object-kind=Node", f"--bound-object-name={node.name}"),
    )
    return write_kubeconfig(ground.kube.kubeconfig(), token, file)


@pytest.fixture
async def plugin(
    ground: Ground, bench: StandInMachine, tmp_path: Path, kubectl: Kubectl
) -> AsyncIterator[DraPlugin]:
    node = ground.nodes[0]
    await put_spec(node, bench)
    await kubectl.apply(*(each.object for each in render_device_classes()))
    uid = (await kubectl.get(f"node/{node.name}"))["metadata"]["uid"]
    folder = node.folder / "disk/var-lib-kubelet"
    async with dra_on(
        bench,
        tmp_path,
        kubelet=folder,
        node=node.name,
        node_uid=uid,
        kubeconfig=str(await kubeconfig_of(ground, kubectl, node, tmp_path / "kubeconfig")),
    ) as plugin:
        await until_registered(plugin)
        yield plugin
    await node.run("rm", GPU_FILE)


async def until_registered(plugin: DraPlugin) -> None:
    """Wait until the kubelet knows the plugin: it tries a pod again only after a minute or more.

    That its slice is there says nothing: another one may have left it.
    """
    await plugin.child.wait_for_log("registered", within=180)


def claim(name: str, count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}
    requests = [{"name": "gpu", "exactly": exactly}]
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    }


def claiming_pod(name: str, node: Node) -> dict[str, Any]:
    """Return a pod with the claim of its name."""
    wanted = placed_pod(name, node)
    wanted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    wanted["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return wanted


def asking_pod(name: str, node: Node) -> dict[str, Any]:
    """Return a pod that asks for one GPU as of the device plugin, and names no claim."""
    wanted = placed_pod(name, node)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {GPU: 1}}
    return wanted


def placed_pod(name: str, node: Node) -> dict[str, Any]:
    """Return a pod that the scheduler places, because it also allocates claims."""
    wanted = pod(name, node.name)
    del wanted["spec"]["nodeName"]
    wanted["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    return wanted


async def gpus_of(kubectl: Kubectl, name: str) -> list[str]:
    """Return the GPUs that a pod sees."""
    return _GIVEN.findall(await kubectl.run("exec", name, "--", "env"))


async def until_published(kubectl: Kubectl, node: Node, last: str, *, within: float = 60) -> None:
    """Wait until the node's slice ends with this device."""
    path = "jsonpath={.spec.devices[-1:].name}=" + last
    await kubectl.succeeds(
        *("wait", f"--for={path}", "--timeout=5s", f"resourceslice/{node.name}-{CLASS}"),
        within=within,
    )


def uses_of(pod: str, socket: str) -> set[str]:
    """Return what the kubelet says that a pod has by claims: the device plugin leaves it out."""
    uses = PodResources(socket).list().uses
    return {each.device for each in uses if each.claimed and each.container.pod == pod}


async def refuse_slice_of(other: Node, kubeconfig: Path, kubectl: Kubectl, node: Node) -> None:
    """Assert that the plugin's account cannot publish for another node, nor read a claim list."""
    published = await kubectl.get(f"resourceslice/{node.name}-{CLASS}")
    pool = {**published["spec"]["pool"], "name": other.name}
    stolen = {
        **{key: published[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": f"{other.name}-{CLASS}"},
        "spec": {**published["spec"], "nodeName": other.name, "pool": pool},
    }
    as_plugin = ("--kubeconfig", str(kubeconfig))
    with pytest.raises(AssertionError, match="the slice of its own node only"):
        await kubectl.run("create", "-f", "-", *as_plugin, stdin=json.dumps(stolen))
    with pytest.raises(AssertionError, match="cannot list resource"):
        await kubectl.run("get", "resourceclaims", *as_plugin)


async def test_pods_get_the_gpus_of_their_claims(
    ground: Ground, kubectl: Kubectl, plugin: DraPlugin
) -> None:
    node, last = ground.nodes[0], f"gpu-{len(plugin.uuids) - 1}"
    await until_published(kubectl, node, last)
    await refuse_slice_of(ground.nodes[1], Path(plugin.settings["kubeconfig"]), kubectl, node)
    await kubectl.apply(claim("two", 2), claiming_pod("two", node))
    await kubectl.wait("condition=Ready", "pod/two")
    two = await gpus_of(kubectl, "two")
    assert len(set(two)) == 2
    assert uses_of("two", plugin.settings["pod_resources"]) == set(two)

    await plugin.child.end(signal.SIGKILL, code=-signal.SIGKILL)
    await plugin.start()
    await until_registered(plugin)
    await kubectl.apply(claim("one", 1), claiming_pod("one", node))
    await kubectl.wait("condition=Ready", "pod/one")
    one = await gpus_of(kubectl, "one")
    assert len(one) == 1
    assert not set(one) & set(two)

    await node.restart_kubelet()
    await kubectl.apply(claim("rest", len(plugin.uuids) - 3), claiming_pod("rest", node))
    await kubectl.wait("condition=Ready", "pod/rest")
    assert sorted([*two, *one, *await gpus_of(kubectl, "rest")]) == sorted(plugin.uuids)
    assert await gpus_of(kubectl, "two") == two

    await kubectl.run("delete", "--wait", "pod/rest")
    assert (await plugin.send(Quiesce())).outcome is Outcome.DONE
    published = await kubectl.get(f"resourceslice/{node.name}-{CLASS}")
    assert published["spec"].get("devices", []) == []
    assert await gpus_of(kubectl, "one") == one
    await kubectl.run("delete", "--wait", "pod/two", "pod/one")
    checkpoint = plugin.programs.folder / "state/claims.json"
    await eventually(lambda: checkpoint.read_text() == "{}", within=180)
    claims = [f"resourceclaim/{name}" for name in ("one", "two", "rest")]
    await kubectl.run("delete", "--wait", *claims)
    assert (await plugin.send(Idle())).outcome is Outcome.DONE
    await until_published(kubectl, node, last)


async def test_a_pod_that_asks_for_the_resource_gets_one_gpu_by_a_claim(
    ground: Ground, kubectl: Kubectl, plugin: DraPlugin
) -> None:
    node = ground.nodes[0]
    await until_published(kubectl, node, f"gpu-{len(plugin.uuids) - 1}")
    await until_no_plugin_offers(kubectl, node)
    await kubectl.apply(asking_pod("asks", node))
    await kubectl.wait("condition=Ready", "pod/asks")
    asks = await kubectl.get("pod/asks")
    assert "resourceClaims" not in asks["spec"]
    name = asks["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    made = await kubectl.get(f"resourceclaim/{name}")
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [
        asks["metadata"]["uid"]
    ]
    (result,) = made["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (CLASS, node.name)
    devices = (await kubectl.get(f"resourceslice/{node.name}-{CLASS}"))["spec"]["devices"]
    (device,) = [each for each in devices if each["name"] == result["device"]]
    uuid = device["attributes"]["uuid"]["string"]
    assert await gpus_of(kubectl, "asks") == [uuid]
    assert uses_of("asks", plugin.settings["pod_resources"]) == {uuid}
    await kubectl.run("delete", "--wait", "pod/asks")
    await kubectl.wait("delete", f"resourceclaim/{name}")


async def until_no_plugin_offers(kubectl: Kubectl, node: Node) -> None:
    """Wait until the kubelet has no GPU of a device plugin: the scheduler would take that one."""

    async def none_is_offered() -> bool:
        status = (await kubectl.get(f"node/{node.name}"))["status"]
        return status["allocatable"].get(GPU, "0") == "0"

    await eventually(none_is_offered, within=180, every=0.5)
