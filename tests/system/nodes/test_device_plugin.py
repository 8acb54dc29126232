"""Our device plugin at a real kubelet: pods get GPUs, also after faults of GPUs and kubelet.

The program runs beside the node, on a machine whose GPUs a stand-in for NVIDIA's library describes.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.reports import Outcome
from libs.host.cdi.published import GPU_FILE
from libs.testing.realnodes.ground import Ground
from libs.testing.realnodes.node import MACHINE, Node
from tests.component.deviceplugin.program import Plugin, cdi_spec, plugin_on
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine
from tests.summary import Figure
from tests.support import eventually
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.test_nodes import pod

__all__ = ["bench"]

GPU: Final = "nvidia.com/gpu"
_GIVEN: Final = re.compile(r"^GIVEN_\d+=(GPU-\S+)$", re.MULTILINE)


@pytest.fixture
async def plugin(
    ground: Ground, bench: StandInMachine, tmp_path: Path, kubectl: Kubectl
) -> AsyncIterator[Plugin]:
    node = ground.nodes[0]
    await put_spec(node, bench)
    sockets = node.folder / "disk/var-lib-kubelet/device-plugins"
    async with plugin_on(bench, tmp_path, sockets=sockets) as plugin:
        yield plugin
    await node.run("rm", GPU_FILE)


async def put_spec(node: Node, bench: StandInMachine) -> None:
    """Let the node's containerd know the GPUs."""
    (node.folder / "machine/spec").write_bytes(cdi_spec(bench))
    await node.run("install", "-D", f"{MACHINE}/spec", GPU_FILE)


def gpu_pod(name: str, node: Node, count: int) -> dict[str, Any]:
    wanted = pod(name, node.name)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {GPU: count}}
    return wanted


async def until_allocatable(kubectl: Kubectl, node: Node, count: int) -> None:
    what = rf"jsonpath={{.status.allocatable.nvidia\.com/gpu}}={count}"
    await kubectl.wait(what, f"node/{node.name}")


async def until_runs(kubectl: Kubectl, wanted: dict[str, Any]) -> None:
    """Create a pod, and again while the kubelet rejects it: it knows no device before a plugin has
    registered.
    """
    name = f"pod/{wanted['metadata']['name']}"

    async def runs() -> bool:
        await kubectl.apply(wanted)
        phase = await kubectl.run("get", name, "-o", "jsonpath={.status.phase}")
        if phase == "Failed":
            await kubectl.run("delete", name)
        return phase == "Running"

    await eventually(runs, within=180, every=0.5)


async def gpus_of(kubectl: Kubectl, name: str) -> list[str]:
    """Return the GPUs that a pod sees."""
    return _GIVEN.findall(await kubectl.run("exec", name, "--", "env"))


async def test_pods_get_gpus_from_our_device_plugin(
    ground: Ground, kubectl: Kubectl, plugin: Plugin, figure: Figure
) -> None:
    node, uuids = ground.nodes[0], plugin.uuids
    await until_allocatable(kubectl, node, len(uuids))
    await kubectl.apply(gpu_pod("two", node, 2), gpu_pod("one", node, 1))
    await kubectl.wait("condition=Ready", "pod/two", "pod/one")
    given = [*await gpus_of(kubectl, "two"), *await gpus_of(kubectl, "one")]
    assert len(given) == len(set(given)) == 3
    assert set(given) <= set(uuids)

    free = next(gpu for gpu in plugin.bench.stand_in.gpus if gpu.uuid not in given)
    free.lose()
    lost_at = time.monotonic()
    await until_allocatable(kubectl, node, len(uuids) - 1)
    figure(
        f"a sick GPU was allocatable for {time.monotonic() - lost_at:.1f} s; a kubelet reports its"
        " status every 10 s"
    )

    await asyncio.gather(node.restart_kubelet(), node.restart_containerd())
    await until_runs(kubectl, gpu_pod("rest", node, len(uuids) - 4))
    rest = await gpus_of(kubectl, "rest")
    assert sorted([*given, *rest, free.uuid]) == sorted(uuids)
    await kubectl.run("delete", "pod/rest", "pod/two", "pod/one")

    assert (await plugin.send(Quiesce())).outcome is Outcome.DONE
    await until_allocatable(kubectl, node, 0)
    assert (await plugin.send(Idle())).outcome is Outcome.DONE
    await until_allocatable(kubectl, node, len(uuids) - 1)
