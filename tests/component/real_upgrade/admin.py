"""What people do in this upgrade: they want a driver, compute, and cordon a node.

All of it is what kubectl would send.
"""

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
    """On one site."""

    def __init__(self, site: Installation) -> None:
        self._site = site

    async def apply_policy(self, version: str) -> None:
        """A ClusterPolicy under which a node passes through every state that there is."""
        upgrade = {
            "autoUpgrade": True,
            "maxParallelUpgrades": 2,
            "maxUnavailable": MAX_UNAVAILABLE,
            "waitForCompletion": {"podSelector": "waited-for=true"},
            "drain": {"enable": True},
        }
        driver = {"repository": "nvcr.example/nvidia", "image": "driver", "version": version}
        await self._site.person.apply(
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": POLICY},
                "spec": {section: {} for section in _SECTIONS}
                | {"driver": {**driver, "upgradePolicy": upgrade}},
            }
        )

    async def create_workloads(self) -> None:
        """On every node a service with GPUs, one without, and a job that is to be waited for."""
        for node in self._site.nodes:
            await self._site.person.apply(_service(f"serve-{node}", node, gpus=2))
            await self._site.person.apply(_service(f"web-{node}", node))
            await self._site.person.apply(_job(f"train-{node}", node, gpus=4))

    async def cordon(self, node: str) -> None:
        """`kubectl cordon`."""
        await self._site.kube.request(
            "PATCH",
            NODES.path(name=node),
            query={"fieldManager": MANAGER},
            body={"spec": {"unschedulable": True}},
            content_type=MERGE_PATCH,
        )

    async def accept_failures(self, failures: int, *, target: str) -> None:
        """`kubectl patch rollout`: so many failures of this target are accepted."""
        await self._site.kube.request(
            "PATCH",
            path_of(ROLLOUT.api_version, ROLLOUT.name, name=POOL),
            query={"fieldManager": MANAGER},
            body={"spec": {"release": {"target": target, "failures": failures}}},
            content_type=MERGE_PATCH,
        )

    async def cordoned(self) -> list[str]:
        """Which nodes are, by whomever."""
        found = (await self._site.kube.list_page(NODES)).items
        return [node.metadata.name for node in found if node.spec.unschedulable]

    async def all_run(self, version: str) -> bool:
        """Whether the Rollout is complete with all nodes, and their kernels have this driver."""
        status = (await self._site.read("Rollout", POOL)).get("status", {})
        done = status.get("counts", {}).get("done", 0)
        if status.get("phase") != RolloutPhase.COMPLETE or done != len(self._site.nodes):
            return False
        loaded = [self._site.up.paths.machine(node) / _LOADED for node in self._site.nodes]
        return all(file.exists() and file.read_text().strip() == version for file in loaded)


def _service(name: str, node: str, *, gpus: int = 0) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod(node, gpus)}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return _workload("apps/v1", "ReplicaSet", name, spec)


def _job(name: str, node: str, *, gpus: int) -> Object:
    pod = {**_pod(node, gpus), "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": name, **WAITED_FOR}}, "spec": pod}
    # One pod after the other: whenever the first node begins, one of them is to be waited for.
    return _workload("batch/v1", "Job", name, {"completions": 3, "template": template})


def _workload(api: str, kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(node: str, gpus: int) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "registry.example/work:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
