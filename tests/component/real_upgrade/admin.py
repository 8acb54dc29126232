"""Requests of an administrator during the upgrade, as kubectl sends them."""

from collections.abc import Mapping
from typing import Any, Final

from demo.admin import MANAGER, POLICY, POOL, path_of
from libs.contracts.rollout import RolloutPhase
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import NODES
from libs.policy.kinds.rollout import ROLLOUT
from tests.component.real_upgrade.installation import Installation

OLD, NEW = "570.86.15", "580.95.05"
MAX_UNAVAILABLE: Final = 2
_LOADED: Final = "sys/module/nvidia/version"
WAITED_FOR: Final = {"waited-for": "true"}
_SECTIONS: Final = (
    "operator", "daemonsets", "toolkit", "devicePlugin", "dcgm", "dcgmExporter",
    "nodeStatusExporter", "gfd",
)  # fmt: skip

Object = Mapping[str, Any]


class UpgradeAdmin:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    async def apply_policy(self, version: str) -> None:
        """Apply a ClusterPolicy under which a node passes through every state."""
        upgrade = {
            "autoUpgrade": True,
            "maxParallelUpgrades": 2,
            "maxUnavailable": MAX_UNAVAILABLE,
            "waitForCompletion": {"podSelector": "waited-for=true"},
            "drain": {"enable": True},
        }
        driver = {"repository": "nvcr.example/nvidia", "image": "driver", "version": version}
        await self._installation.person.apply(
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": POLICY},
                "spec": {section: {} for section in _SECTIONS}
                | {"driver": {**driver, "upgradePolicy": upgrade}},
            }
        )

    async def create_workloads(self) -> None:
        """Create on every node a service with GPUs, a service without, and a job to wait for."""
        for node in self._installation.nodes:
            await self._installation.person.apply(_service(f"serve-{node}", node, gpus=2))
            await self._installation.person.apply(_service(f"web-{node}", node))
            await self._installation.person.apply(_job(f"train-{node}", node, gpus=4))

    async def cordon(self, node: str) -> None:
        await self._installation.kube.request(
            "PATCH",
            NODES.path(name=node),
            query={"fieldManager": MANAGER},
            body={"spec": {"unschedulable": True}},
            content_type=MERGE_PATCH,
        )

    async def accept_failures(self, failures: int, *, target: str) -> None:
        """`kubectl patch rollout`: accept this many failures of the target."""
        await self._installation.kube.request(
            "PATCH",
            path_of(ROLLOUT.api_version, ROLLOUT.name, name=POOL),
            query={"fieldManager": MANAGER},
            body={"spec": {"release": {"target": target, "failures": failures}}},
            content_type=MERGE_PATCH,
        )

    async def cordoned(self) -> list[str]:
        nodes = (await self._installation.kube.list_page(NODES)).items
        return [node.metadata.name for node in nodes if node.spec.unschedulable]

    async def all_run(self, version: str) -> bool:
        """Return whether the Rollout is complete and every kernel has this driver."""
        status = (await self._installation.read("Rollout", POOL)).get("status", {})
        done = status.get("counts", {}).get("done", 0)
        if status.get("phase") != RolloutPhase.COMPLETE or done != len(self._installation.nodes):
            return False
        loaded = [
            self._installation.up.paths.machine(node) / _LOADED for node in self._installation.nodes
        ]
        return all(file.exists() and file.read_text().strip() == version for file in loaded)


def _service(name: str, node: str, *, gpus: int = 0) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod(node, gpus)}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return _workload("apps/v1", "ReplicaSet", name, spec)


def _job(name: str, node: str, *, gpus: int) -> Object:
    pod = {**_pod(node, gpus), "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": name, **WAITED_FOR}}, "spec": pod}
    # Three pods in sequence, so that one runs whenever the first node starts.
    return _workload("batch/v1", "Job", name, {"completions": 3, "template": template})


def _workload(api_version: str, kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(node: str, gpus: int) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "registry.example/work:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
