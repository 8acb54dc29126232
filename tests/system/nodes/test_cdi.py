"""Pods on a real node get a GPU by our CDI specs: device files, libraries and programs.

The specs are made as the driver agent makes them, by our image in a pod with the node's root. The
driver is a folder with stand-ins of its libraries, as the root of a driver container.
"""

import asyncio
import gzip
import json
import os
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from libs.testing import oci
from libs.testing.go_build import go_target
from libs.testing.image.build import IMAGE, build, is_quick
from libs.testing.nvml.profiles import H100_80GB
from libs.testing.oci import Files, ImageConfig
from libs.testing.realnodes.gpus import ENVIRONMENT, HOST, NodeGpus
from libs.testing.realnodes.ground import Ground, NodeSearch
from libs.testing.realnodes.node import Node
from tests.system.nodes.device_plugin import RESOURCE, DevicePlugin
from tests.system.nodes.driver_root import ROOT, SMI_SAYS, driver_root
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.test_nodes import pod

SPEC = "/var/run/cdi/nvidia.com-gpu.json"
HOSTILE_IMAGE = "localhost/hostile:test"
OUTSIDE = "/outside"
LOADER_CACHE = "/etc/ld.so.cache"
MAKE = f"""
import asyncio
from libs.host.gpus.nvml import NvmlGpus
from libs.host.machine import InlineOffload, Machine
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from services.driver.node.toolkit import Toolkit

tree = Tree("{HOST}")
machine = Machine(tree=tree, offload=InlineOffload(), gpus=NvmlGpus(tree))
toolkit = Toolkit(
    machine=machine, clock=SystemClock(), root="{ROOT}", architecture="x86_64", enabled=True
)
asyncio.run(toolkit.refresh())
print(toolkit.cdi)
"""
WAIT = ("python3", "-c", "import time; time.sleep(3600)")
"""The image has no shell."""
USE = """
import ctypes, json, os
for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
    ctypes.CDLL(name)
devices = sorted(name for name in os.listdir("/dev") if name.startswith("nvidia"))
visible = os.environ["NVIDIA_VISIBLE_DEVICES"]
smi, cache = os.access("/usr/bin/nvidia-smi", os.X_OK), os.path.exists("/etc/ld.so.cache")
print(json.dumps([smi, devices, visible, os.getuid(), cache]))
"""


def with_gpu(name: str, node: Node, **changes: Any) -> dict[str, Any]:
    wanted = pod(name, node.name)
    container = wanted["spec"]["containers"][0]
    container["resources"] = {"limits": {RESOURCE: 1}}
    container.update(changes)
    return wanted


def with_cache(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with the cache of Debian's loader, which our image does not have."""
    (container,) = wanted["spec"]["containers"]
    container["volumeMounts"] = [{"name": "cache", "mountPath": LOADER_CACHE, "readOnly": True}]
    cache = {"path": LOADER_CACHE, "type": "File"}
    wanted["spec"]["volumes"] = [{"name": "cache", "hostPath": cache}]
    return wanted


def write_hostile_image(busybox: Path, target: Path) -> None:
    """Write an image whose folders of libraries are links out of it."""
    with tarfile.open(busybox) as archive:
        index = json.load(archive.extractfile("index.json") or pytest.fail("no index"))
        manifest = _blob(archive, index["manifests"][0]["digest"])
        layer = gzip.decompress(_blob(archive, json.loads(manifest)["layers"][0]["digest"]))
    links = Files(
        links={
            "etc/ld.so.cache": f"{OUTSIDE}/cache",
            "usr/bin/nvidia-smi": f"{OUTSIDE}/program",
            "usr/lib64": OUTSIDE,
            "usr/lib/x86_64-linux-gnu": f"../../../../../../..{OUTSIDE}",
        }
    ).tar()
    config = ImageConfig(cmd=["/bin/sh"])
    _, architecture = go_target()
    oci.write_image(target, HOSTILE_IMAGE, [layer, links], config, architecture=architecture)


def _blob(archive: tarfile.TarFile, digest: str) -> bytes:
    file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file is not None
    return file.read()


@pytest.fixture
async def node(ground: Ground, kubectl: Kubectl) -> AsyncIterator[Node]:
    """A node with GPUs, a driver's root and our image."""
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    node = ground.nodes[0]
    await node.import_image(await asyncio.to_thread(build, os.environ, report=lambda _: None))
    gpus = await NodeGpus.insert(node, H100_80GB)
    async with driver_root(node, gpus):
        yield node
    await node.run("rm", "-f", SPEC)
    await gpus.remove()


@pytest.fixture
async def spec(node: Node, kubectl: Kubectl) -> dict[str, Any]:
    """The node's spec of its GPUs, made by a pod of our image."""
    maker = pod("maker", node.name)
    container = maker["spec"]["containers"][0]
    name, _, value = ENVIRONMENT.partition("=")
    container |= {
        "image": IMAGE,
        "command": ["python3", "-c", MAKE],
        "resources": {},
        "env": [{"name": name, "value": value}],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"},
            {"name": "dev", "mountPath": "/dev"},
        ],
    }
    maker["spec"] |= {
        "containers": [container],
        "restartPolicy": "Never",
        "volumes": [
            {"name": "host", "hostPath": {"path": "/"}},
            {"name": "dev", "hostPath": {"path": "/dev"}},
        ],
    }
    await kubectl.apply(maker)
    await kubectl.wait(r"jsonpath={.status.containerStatuses[0].state.terminated}", "pod/maker")
    said = await kubectl.run("logs", "maker")
    await kubectl.run("delete", "pod/maker")
    assert "why=''" in said, said
    return json.loads(await node.run("cat", SPEC))


@pytest.fixture
async def start_plugin(node: Node) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Offer one GPU to four pods, by the name of its CDI device."""
    folder = node.folder / "disk/var-lib-kubelet/device-plugins"
    plugins: list[DevicePlugin] = []

    async def start(device: str) -> None:
        replicas = [f"{device}::{number}" for number in range(4)]
        plugins.append(DevicePlugin(folder, *replicas, cdi=f"nvidia.com/gpu={device}"))
        await asyncio.to_thread(plugins[0].start)

    yield start
    for plugin in plugins:
        await asyncio.to_thread(plugin.stop)


@pytest.fixture
async def hostile_image(node: Node, search: NodeSearch, tmp_path: Path) -> AsyncIterator[None]:
    """An image on the node whose links lead to a folder that the node has too."""
    target = tmp_path / "hostile.tar"
    await asyncio.to_thread(
        write_hostile_image, search.programs.node / "images/busybox.tar", target
    )
    await node.import_image(target)
    await node.run("mkdir", OUTSIDE)
    yield
    await node.run("rm", "-r", OUTSIDE)


async def test_pods_get_a_gpu_whatever_their_image(
    node: Node,
    spec: dict[str, Any],
    kubectl: Kubectl,
    hostile_image: None,
    start_plugin: Callable[[str], Awaitable[None]],
) -> None:
    uuids = [each["name"] for each in spec["devices"] if each["name"].startswith("GPU-")]
    assert len(uuids) == len(H100_80GB.addresses)
    ids = {each["name"]: each["containerEdits"] for each in spec["devices"]}
    (device,) = [name for name, edits in ids.items() if name in uuids and edits == ids["3"]]
    await start_plugin(device)
    await kubectl.wait(r"jsonpath={.status.allocatable.nvidia\.com/gpu}=4", f"node/{node.name}")
    restricted = {
        "readOnlyRootFilesystem": True,
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    await kubectl.apply(
        with_cache(with_gpu("debian", node, image=IMAGE, command=WAIT)),
        with_gpu("distroless", node, image=IMAGE, command=WAIT),
        with_gpu("restricted", node, image=IMAGE, command=WAIT, securityContext=restricted),
        with_gpu("hostile", node, image=HOSTILE_IMAGE),
    )
    names = ("debian", "distroless", "restricted", "hostile")
    await kubectl.wait("condition=Ready", *(f"pod/{name}" for name in names))
    for name, user in (("debian", 65532), ("distroless", 65532), ("restricted", 1000)):
        said = json.loads(await kubectl.run("exec", name, "--", "python3", "-c", USE))
        assert said[:-1] == [True, ["nvidia-uvm", "nvidia3", "nvidiactl"], "void", user]
        assert said[-1] == (name == "debian")
    inside = await kubectl.run("exec", "hostile", "--", "ls", OUTSIDE)
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "program"} <= set(inside.split())
    assert await kubectl.run("exec", "hostile", "--", "nvidia-smi") == f"{SMI_SAYS}\n"
    assert await node.run("ls", OUTSIDE) == ""
    await kubectl.run("delete", *(f"pod/{name}" for name in names))
