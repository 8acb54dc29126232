"""A GPU Operator's fleet on the simulated API server: its policy, Lease, DaemonSets and pods."""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from demo.admin import path_of
from libs.contracts.node import STATE_LABEL
from libs.kube.client import MERGE_PATCH
from libs.kube.lease.record import GPU_OPERATOR_LEASE
from libs.kube.resources import LEASES, NAMESPACES
from libs.kube.views import format_micro_time
from libs.policy.crds import crd_manifests
from tests.component.ctl.world import World, make_world

NAMESPACE = "gpu-operator"
DRIVER = "nvidia-driver-daemonset"
VERSION = "580.95.05"
SECTIONS = (
    "operator",
    "daemonsets",
    "toolkit",
    "devicePlugin",
    "dcgmExporter",
    "dcgm",
    "nodeStatusExporter",
    "gfd",
)
UPGRADE_POLICY: Mapping[str, Any] = {
    "autoUpgrade": True,
    "maxParallelUpgrades": 1,
    "maxUnavailable": "25%",
    "podDeletion": {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
}


class OperatorFleet(World):
    """A cluster with the operator and without Sluice."""

    driver_uid = ""

    async def install(self) -> None:
        for name, definition in crd_manifests().items():
            if "nvidia.com" in name and "gpu.nvidia.com" not in name:
                await self.apply(definition)

    async def add_operator(self, *, age: float = 1.0, **policy: Any) -> None:
        """Create the policy, the Lease and the DaemonSet of drivers with its two revisions."""
        await self.kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        spec: dict[str, Any] = {each: {} for each in SECTIONS}
        spec["driver"] = {
            "repository": "r.example",
            "image": "driver",
            "version": VERSION,
            "upgradePolicy": {**UPGRADE_POLICY, **policy},
        }
        await self.apply(
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "cluster-policy"},
                "spec": spec,
            }
        )
        lease = {
            "metadata": {"name": GPU_OPERATOR_LEASE},
            "spec": {
                "holderIdentity": "gpu-operator-1",
                "leaseDurationSeconds": 15,
                "renewTime": format_micro_time(time.time() - age),
            },
        }
        await self.kube.create(LEASES, lease, namespace=NAMESPACE)
        labels = {"app": DRIVER, "app.kubernetes.io/component": "nvidia-driver"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": _containers()}}
        driver = await self.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": DRIVER, "namespace": NAMESPACE, "labels": labels},
                "spec": {"selector": {"matchLabels": {"app": DRIVER}}, "template": template},
            }
        )
        self.driver_uid = driver["metadata"]["uid"]
        for number, name in enumerate(("old", "new"), start=1):
            await self.apply(
                {
                    "apiVersion": "apps/v1",
                    "kind": "ControllerRevision",
                    "metadata": {
                        "name": f"{DRIVER}-{name}",
                        "namespace": NAMESPACE,
                        "labels": labels,
                        "ownerReferences": [self._owner()],
                    },
                    "revision": number,
                }
            )

    def _owner(self) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": DRIVER,
            "uid": self.driver_uid,
            "controller": True,
        }

    async def add_gpu_node(
        self,
        name: str,
        *,
        state: str = "",
        revision: str = "new",
        driver_ready: bool = True,
        restarts: int = 0,
        validator: bool | None = True,
        cordoned: bool = False,
        labels: Mapping[str, str] = {},
        annotations: Mapping[str, str] = {},
    ) -> None:
        """Create a Node with GPUs, its driver pod (of no revision: none) and its validator."""
        states = {STATE_LABEL: state} if state else {}
        await self.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"nvidia.com/gpu.present": "true", **states, **labels},
                    "annotations": dict(annotations),
                },
                "spec": {"unschedulable": cordoned},
            }
        )
        if revision:
            await self.add_pod(
                f"driver-{name}",
                name,
                namespace=NAMESPACE,
                ready=driver_ready,
                restarts=restarts,
                owner=self._owner(),
                labels={
                    "app": DRIVER,
                    "app.kubernetes.io/component": "nvidia-driver",
                    "controller-revision-hash": revision,
                },
                containers=_containers(digest=revision),
            )
        if validator is not None:
            await self.add_pod(
                f"validator-{name}",
                name,
                namespace=NAMESPACE,
                ready=validator,
                labels={"app": "nvidia-operator-validator"},
                containers=[{"name": "validator", "image": "validator"}],
            )

    async def add_job(self, name: str, node: str, *, owned: bool = True, **spec: Any) -> None:
        """Create a pod that computes on a GPU."""
        resources = {"limits": {"nvidia.com/gpu": "1"}}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "j",
            "controller": True,
        }
        await self.add_pod(
            name,
            node,
            labels={"app": "train"},
            owner=owner if owned else None,
            containers=[{"name": "train", "image": "train", "resources": resources}],
            **spec,
        )

    async def add_pod(
        self,
        name: str,
        node: str,
        *,
        namespace: str = "default",
        ready: bool = True,
        restarts: int = 0,
        labels: Mapping[str, str],
        owner: Mapping[str, Any] | None = None,
        containers: list[dict[str, Any]],
        **spec: Any,
    ) -> None:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels)}
        if owner is not None:
            metadata["ownerReferences"] = [dict(owner)]
        await self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"nodeName": node, "containers": containers, **spec},
            }
        )
        statuses = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": restarts,
            }
            for each in containers
        ]
        path = f"{path_of('v1', 'Pod', name=name, namespace=namespace)}/status"
        body = {"status": {"phase": "Running", "containerStatuses": statuses}}
        await self.kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def finish(self) -> None:
        """Let the DaemonSet want as many driver pods as there are."""
        listed = await self.kube.request("GET", path_of("v1", "Pod", namespace=NAMESPACE, name=""))
        pods = [
            each
            for each in msgspec.json.decode(listed)["items"]
            if each["metadata"]["labels"]["app"] == DRIVER
        ]
        await self.want_driver_pods(len(pods))

    async def want_driver_pods(self, count: int) -> None:
        path = f"{path_of('apps/v1', 'DaemonSet', name=DRIVER, namespace=NAMESPACE)}/status"
        status = {
            "desiredNumberScheduled": count,
            "currentNumberScheduled": count,
            "numberReady": count,
            "numberMisscheduled": 0,
        }
        await self.kube.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


def _containers(digest: str = "new") -> list[dict[str, Any]]:
    variables = [{"name": "DRIVER_CONFIG_DIGEST", "value": digest}]
    image = f"driver:{VERSION}-ubuntu22.04"
    return [{"name": "nvidia-driver-ctr", "image": image, "env": variables}]


@asynccontextmanager
async def make_fleet(folder: Path, **policy: Any) -> AsyncGenerator[OperatorFleet]:
    """Start the API server with the operator's objects and no nodes yet."""
    async with make_world(folder, world_of=OperatorFleet) as fleet:
        await fleet.add_operator(**policy)
        yield fleet
