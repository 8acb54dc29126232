"""The chart on the real control plane with simulated kubelets: installed, used and removed."""

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    MANAGER,
    MIG_CONFIG_LABEL,
    RECORD_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    UpgradeState,
)
from libs.contracts.rollout import FINALIZER
from libs.kube.client import MERGE_PATCH, Preconditions
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import Transport
from libs.kube.resources import DAEMON_SETS, NODES, PODS, CustomKind, custom_resource
from libs.kube.views import Object as View
from libs.policy.kinds.device import DEVICE
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.rollout import ROLLOUT
from libs.policy.render.agents import AGENTS
from libs.policy.render.rendered import MANAGED_BY, MANAGED_BY_LABEL
from libs.runtime.clock import SystemClock
from libs.runtime.env import Env
from libs.runtime.service import Service
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.realkube.cluster import RealKube
from services.driver.cluster.role import DriverClusterSettings, run
from services.driver.uninstall import traces
from services.driver.uninstall.role import uninstall
from services.signin.setup.contents import Wanted
from services.signin.setup.role import set_up
from tests.component.chart.conftest import as_list
from tests.component.chart.rendered import Object, is_hook, parsed
from tests.component.driver.uninstall.snapshot import snapshot, until_as
from tests.component.installation import Installation
from tests.component.kube.sandbox import ALICE, Sandbox, ServerUnderTest
from tests.support import eventually
from tests.system.nodes.kubectl import Kubectl
from tests.unit.policy.situations import SETTINGS, node, nvidia_driver

PRESENT = {
    **node("a").labels,
    **{key: value for key, value in (agent.selector for agent in AGENTS) if "nvidia.com" in key},
}
"""What discovery writes for the agents to be placed."""


class Site:
    """One installation; the namespace and two machines are there before it."""

    def __init__(
        self, plane: RealKube, server: ServerUnderTest, sandbox: Sandbox, objects: Sequence[Object]
    ) -> None:
        self.kubectl = Kubectl(plane)
        self.namespace = sandbox.namespace
        self._sandbox = sandbox
        self._plane = plane
        self._server = server
        self._chart = [each for each in objects if not is_hook(each)]
        self._hook = [each for each in objects if is_hook(each) and _is_right(each)]
        self.nodes: list[str] = []

    async def snapshot(self) -> dict[str, Any]:
        return await snapshot(self._sandbox.kube(), own=self.namespace)

    async def until_as(self, before: Mapping[str, Any]) -> None:
        """Wait until the cluster is as in this snapshot; fail with what is not."""
        await until_as(before, self._sandbox.kube(), own=self.namespace)

    async def install(self) -> None:
        """Create what the chart has, and what its setup writes."""
        await self.kubectl.run("apply", "--server-side", "-f", "-", stdin=as_list(self._chart))
        setup = self._sandbox.kube(manager="sluice-setup")
        wanted = Wanted(namespace=self.namespace, servers=1, nodes=10)
        await set_up(setup, wanted, now=SystemClock().now())

    async def remove_chart(self) -> None:
        await self.kubectl.run(
            "delete", "--ignore-not-found", "-f", "-", stdin=as_list(self._chart)
        )

    async def use(self) -> None:
        """Let the driver service create operands, and write what the other services write."""
        for name in self.nodes:
            await self.apply_to_node(name, traces.DISCOVERY, labels=PRESENT)
        settings = DriverClusterSettings(namespace=self.namespace, images=SETTINGS.images)

        async def role(transport: Transport, env: Env, service: Service) -> None:
            await run(settings, kube=transport, commanded_drivers=dict, env=env, service=service)

        site = Installation(self._server, self._sandbox, Writer.DRIVER_CLUSTER)
        async with site.role(role):
            await eventually(self._has_driver, within=120, every=0.1)
            driver = await self._driver_label()
            for name in self.nodes:
                await self.apply_to_node(
                    name,
                    MANAGER,
                    labels={DRIVER_LABEL: driver, STATE_LABEL: UpgradeState.UPGRADE_FAILED},
                    annotations={RECORD_ANNOTATION: _record(name)},
                    spec={"unschedulable": True},
                )
            try:
                await eventually(self._is_rolled_out, within=120, every=0.1)
            except TimeoutError:
                raise AssertionError(await self.kubectl.run("get", "ds,pods", "-A")) from None
        await self._write_beside()

    async def _write_beside(self) -> None:
        """Create a pod, Rollout, Device and condition, as services do."""
        labels = {MANAGED_BY_LABEL: MANAGED_BY}
        pod = {
            "metadata": {"name": "beside", "labels": labels},
            "spec": {"nodeName": self.nodes[0], "containers": [{"name": "c", "image": "c"}]},
        }
        named = {"apiVersion": "v1", "kind": "Pod", **pod}
        await self._sandbox.kube().create(PODS, named, namespace=self.namespace)
        device = {"node": self.nodes[0], "index": 0, "product": "L40S"}
        objects: tuple[tuple[CustomKind, dict[str, Any]], ...] = (
            (ROLLOUT, {"metadata": {"name": "pool", "finalizers": [FINALIZER]}, "spec": {}}),
            (DEVICE, {"metadata": {"name": "gpu-0"}, "spec": device}),
        )
        for kind, body in objects:
            resource = custom_resource(kind, View)
            # Whatever becomes of the test: the next one creates it too.
            self._sandbox.delete_at_close(resource, body["metadata"]["name"])
            named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
            await self._sandbox.kube().create(resource, named)
        condition = {"type": traces.CONDITION, "status": "True", "reason": "r", "message": "m"}
        await self.apply_to_node(
            self.nodes[0],
            traces.DISCOVERY,
            subresource="status",
            status={"conditions": [condition]},
        )

    async def create_driver(self, name: str, **spec: Any) -> None:
        """Create an NVIDIADriver as a person; it stays until the end of the test."""
        resource = custom_resource(NVIDIA_DRIVER, View)
        self._sandbox.delete_at_close(resource, name)
        body = nvidia_driver(name, **spec)
        del body["metadata"]["uid"]
        await self._sandbox.kube(user=ALICE, manager="kubectl").create(resource, body)

    async def edit_by_hand(self) -> None:
        """Change Nodes as a person: what has a meaning without Sluice stays."""
        second = self.nodes[1]
        alice = self._sandbox.kube(user=ALICE, manager="kubectl-edit")
        found = await alice.get(NODES, second)
        await alice.merge(
            NODES,
            second,
            {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-disabled"}}},
            resource_version=found.metadata.resource_version,
        )
        await self.kubectl.run("cordon", second)

    async def apply_to_node(
        self, name: str, manager: str, *, subresource: str = "", **fields: Any
    ) -> None:
        """Apply fields of a Node as one of our services."""
        kube = self._sandbox.kube(manager=manager)
        metadata = {key: fields.pop(key) for key in ("labels", "annotations") if key in fields}

        async def applied() -> bool:
            found = (await kube.get(NODES, name)).metadata
            await kube.apply(
                NODES,
                {"metadata": {"name": name, **metadata}, **fields},
                force=True,
                preconditions=Preconditions(uid=found.uid, resource_version=found.resource_version),
                subresource=subresource,
            )
            return True

        await eventually(applied)

    async def lease(self, name: str, owner: LeaseOwner) -> None:
        uid = (await self._sandbox.kube().get(NODES, name)).metadata.uid
        lease = encode(NodeLease(node_uid=uid, owner=owner, token=1, since=0.0)).decode()
        await self.kubectl.run("annotate", "node", name, f"{LEASE_ANNOTATION}={lease}")

    async def uninstall(self, *, within: float = 240.0) -> Mapping[str, Sequence[str]]:
        """Run the role with the rights that the chart gives its Job; return what it does."""
        await self.kubectl.run("apply", "--server-side", "-f", "-", stdin=as_list(self._hook))
        clock = SystemClock()
        token = await self.kubectl.run(
            "create", "token", "sluice-uninstall", "--namespace", self.namespace
        )
        tls = ssl.create_default_context(cafile=self._plane.ca_file)
        credentials = StaticToken(token.strip(), tls=tls)
        async with HttpTransport(self._plane.url, credentials=credentials) as transport:
            until = clock.monotonic() + within
            in_use = await uninstall(transport, namespace=self.namespace, clock=clock, until=until)
        await self.remove_rights()
        return in_use

    async def use_gpu(self, name: str, node: str) -> None:
        """Let a pod of people run with a GPU of a node, until the end of the test."""
        container = {"name": "c", "image": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [container]},
        }
        kube = self._sandbox.kube(user=ALICE, manager="kubectl")
        await kube.create(PODS, pod, namespace=self.namespace)
        path = PODS.path(namespace=self.namespace, name=name, subresource="status")
        await self._sandbox.kube().request(
            "PATCH", path, body={"status": {"phase": "Running"}}, content_type=MERGE_PATCH
        )

    async def remove_rights(self) -> None:
        """Remove what Helm removes with a hook that has succeeded."""
        await self._remove(self._hook)

    async def _remove(self, objects: list[Object]) -> None:
        await self.kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=as_list(objects))

    async def _driver_label(self) -> str:
        found = await self._daemon_sets()
        return next(
            each["metadata"]["labels"][DRIVER_LABEL]
            for each in found
            if DRIVER_LABEL in each["metadata"]["labels"]
        )

    async def _daemon_sets(self) -> list[dict[str, Any]]:
        return await self._listed(DAEMON_SETS.path(namespace=self.namespace))

    async def _has_driver(self) -> bool:
        found = await self._daemon_sets()
        return any(DRIVER_LABEL in each["metadata"]["labels"] for each in found)

    async def _is_rolled_out(self) -> bool:
        statuses = [each["status"] for each in await self._daemon_sets()]
        rolled_out = len(statuses) == 6 and all(each.get("numberReady") for each in statuses)
        return rolled_out and await self._is_answered()

    async def _is_answered(self) -> bool:
        """Return whether each policy has a status."""
        policies = await self._listed(custom_resource(NVIDIA_DRIVER, View).path())
        return all("status" in each for each in policies)

    async def _listed(self, path: str) -> list[dict[str, Any]]:
        return msgspec.json.decode(await self._sandbox.kube().request("GET", path))["items"]

    async def pods(self) -> list[str]:
        """Return the names of the pods of the namespace."""
        page = await self._sandbox.kube().list_page(PODS, namespace=self.namespace)
        return [each.metadata.name for each in page.items]

    async def removed_daemon_sets(self) -> list[str]:
        """Return the names of the DaemonSets that were deleted, in this order."""
        return [
            each.name
            for each in await self._sandbox.revisions()
            if (each.verb, each.kind) == ("delete", "DaemonSet")
        ]

    async def daemon_sets(self) -> list[str]:
        page = await self._sandbox.kube().list_page(DAEMON_SETS, namespace=self.namespace)
        return sorted(each.metadata.name for each in page.items)


def _record(name: str) -> str:
    return encode(NodeRecord(node_uid=f"uid of {name}", epoch=1, token=1)).decode()


def _is_right(obj: Object) -> bool:
    is_kind = obj["kind"] != "Job"
    return is_kind and obj["metadata"]["name"].rpartition(":")[2] == "sluice-uninstall"


@asynccontextmanager
async def site_of(
    plane: RealKube, server: ServerUnderTest, sandbox: Sandbox, rendered: str
) -> AsyncGenerator[tuple[Site, KubeletFleet]]:
    """Start two machines; the objects of the chart are those of `helm template`."""
    site = Site(plane, server, sandbox, parsed(rendered))
    async with sandbox.machines() as fleet:
        for name in ("a", "b"):
            site.nodes.append(await sandbox.machine(fleet, name))
            labels = {"kubernetes.io/os": "linux"}
            await site.kubectl.run(
                "label", "--overwrite", "node", site.nodes[-1], *map("=".join, labels.items())
            )
        yield site, fleet
