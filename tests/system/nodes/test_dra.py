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
from libs.testing.realnodes.ground import Ground
from libs.testing.realnodes.node import Node
from tests.component.dra.program import DraPlugin, dra_on
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine
from tests.support import eventually
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.test_device_plugin import put_spec
from tests.system.nodes.test_nodes import pod

__all__ = ["bench"]

NAMESPACE: Final = "gpu-operator"
API: Final = "resource.k8s.io/v1"
CLASS: Final = "gpu.nvidia.com"
DEVICE_CLASS: Final = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": CLASS},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": f"device.driver == '{CLASS}'"
                    f" && device.attributes['{CLASS}'].type == 'gpu'"
                }
            }
        ]
    },
}
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
    await kubectl.apply(DEVICE_CLASS)
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
        yield plugin
    await node.run("rm", GPU_FILE)


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
    """Return a pod with the claim of its name. The scheduler places it, as it allocates claims."""
    wanted = pod(name, node.name)
    del wanted["spec"]["nodeName"]
    wanted["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    wanted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    wanted["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
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
    with pytest.raises(AssertionError, match="slices of its own node only"):
        await kubectl.run("create", "-f", "-", *as_plugin, stdin=json.dumps(stolen))
    with pytest.raises(AssertionError, match="cannot list resource"):
        await kubectl.run("get", "resourceclaims", *as_plugin)


@pytest.mark.timeout(900)
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
    await plugin.child.wait_for_log("registered", within=180)
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
