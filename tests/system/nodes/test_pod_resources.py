"""A real kubelet says which pod has which GPU, also after a restart."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from libs.host.podresources.assignments import DeviceUse, PodContainer
from libs.host.podresources.client import KubeletUnavailable, PodResources
from libs.testing.realnodes.ground import Ground
from tests.support import eventually
from tests.system.nodes.device_plugin import RESOURCE, DevicePlugin
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

GPU = "GPU-5d0a1c9e::0"
USE = DeviceUse(GPU, PodContainer("default", "with-gpu", "main"))


@pytest.fixture
def kubelet_folder(ground: Ground) -> Path:
    return ground.nodes[0].folder / "disk/var-lib-kubelet"


@pytest.fixture
def resources(kubelet_folder: Path) -> Iterator[PodResources]:
    resources = PodResources(str(kubelet_folder / "pod-resources/kubelet.sock"))
    yield resources
    resources.close()


@pytest.fixture
async def plugin(kubelet_folder: Path, kubectl: Kubectl) -> AsyncIterator[DevicePlugin]:
    plugin = DevicePlugin(kubelet_folder / "device-plugins", GPU)
    await asyncio.to_thread(plugin.start)
    yield plugin
    plugin.stop()


def uses(resources: PodResources) -> tuple[DeviceUse, ...] | None:
    """Return the devices of pods; None while the kubelet does not answer."""
    try:
        return resources.list().uses
    except KubeletUnavailable:
        return None


async def test_the_pod_of_a_gpu_is_listed(
    ground: Ground, kubectl: Kubectl, plugin: DevicePlugin, resources: PodResources
) -> None:
    node = ground.nodes[0]
    await kubectl.wait(r"jsonpath={.status.allocatable.nvidia\.com/gpu}=1", f"node/{node.name}")
    assert resources.list().uses == ()
    wanted = pod("with-gpu", node.name)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: 1}}
    await kubectl.apply(wanted)
    await kubectl.wait("condition=Ready", "pod/with-gpu")
    assert resources.list().uses == (USE,)
    await node.restart_kubelet()
    await eventually(lambda: uses(resources) == (USE,), within=180)
    await kubectl.run("delete", "pod/with-gpu")
    await eventually(lambda: uses(resources) == (), within=180)
