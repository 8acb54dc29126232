"""The actions of the administrator in the demo, with the requests that kubectl would send."""

from collections.abc import Mapping
from typing import Any, Final

from demo.paths import NAMESPACE
from libs.contracts.identities import CLUSTER_WRITERS, Writer
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.resources import LEASES
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects, service_account_of
from libs.policy.kinds import KINDS

USER: Final = "person"
MANAGER: Final = "kubectl"
POLICY: Final = "cluster-policy"
POOL: Final = f"clusterpolicy-{POLICY}"
MAX_UNAVAILABLE: Final = 1
_RBAC: Final = "rbac.authorization.k8s.io"
_SECTIONS: Final = (
    "operator", "daemonsets", "toolkit", "devicePlugin", "dcgm", "dcgmExporter",
    "nodeStatusExporter", "gfd",
)  # fmt: skip

Object = Mapping[str, Any]


class DemoAdmin:
    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def install(self) -> None:
        """Create custom resource definitions, namespace, service accounts and leader leases."""
        for definition in crd_manifests().values():
            await self.apply(definition)
        for manifest in installation_objects(NAMESPACE):
            if not manifest["apiVersion"].startswith(_RBAC):  # RBAC is not simulated
                await self.apply(manifest)
        for writer in CLUSTER_WRITERS:
            if writer is not Writer.CTL:
                lease = {"metadata": {"name": service_account_of(writer)}}
                await self._kube.create(LEASES, lease, namespace=NAMESPACE)

    async def apply_policy(self, version: str) -> None:
        """Apply a minimal ClusterPolicy."""
        upgrade = {
            "autoUpgrade": True,
            "maxParallelUpgrades": 1,
            "maxUnavailable": MAX_UNAVAILABLE,
            "waitForCompletion": {"podSelector": "waited-for=true"},
        }
        driver = {"repository": "nvcr.example/nvidia", "image": "driver", "version": version}
        await self.apply(
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": POLICY},
                "spec": {section: {} for section in _SECTIONS}
                | {"driver": {**driver, "upgradePolicy": upgrade}},
            }
        )

    async def set_driver_version(self, version: str) -> None:
        """Change the driver version, as `kubectl patch clusterpolicy` does."""
        await self._merge(
            path_of("nvidia.com/v1", "ClusterPolicy", name=POLICY),
            {"spec": {"driver": {"version": version}}},
        )

    async def accept_failures(self, target: str, *, failures: int) -> None:
        """Accept failures of a target, as `kubectl patch rollout` does."""
        await self._merge(
            path_of("sluice.dev/v1alpha1", "Rollout", name=POOL),
            {"spec": {"release": {"target": target, "failures": failures}}},
        )

    async def retry_node(self, node: str) -> None:
        """Request another attempt on a node, as `kubectl label node` does."""
        labels = {STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value}
        await self._merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})

    async def create_service(self, name: str, node: str, *, gpus: int) -> None:
        """Create a service with GPUs, whose pods are replaced when they are evicted."""
        labels = {"app": name}
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(node, gpus)},
        }
        await self.apply(_workload("apps/v1", "ReplicaSet", name, spec))

    async def create_job(self, name: str, node: str, *, gpus: int) -> None:
        """Create a job with GPUs, which the upgrade has to wait for."""
        template = {
            "metadata": {"labels": {"app": name, "waited-for": "true"}},
            "spec": {**_pod(node, gpus), "restartPolicy": "Never"},
        }
        await self.apply(_workload("batch/v1", "Job", name, {"template": template}))

    async def apply(self, obj: Object) -> None:
        """Apply an object, as `kubectl apply --server-side` does."""
        metadata = obj["metadata"]
        path = path_of(
            obj["apiVersion"],
            obj["kind"],
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
        )
        query = {"fieldManager": MANAGER, "force": "true"}
        await self._kube.request("PATCH", path, query=query, body=obj, content_type=APPLY_PATCH)

    async def _merge(self, path: str, body: Object) -> None:
        query = {"fieldManager": MANAGER}
        await self._kube.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)


def path_of(api: str, kind: str, *, name: str, namespace: str = "") -> str:
    """Return the API path of an object."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    plural = KINDS[kind].plural if kind in KINDS else _plural(kind.lower())
    return f"{root}{scope}/{plural}/{name}"


def _plural(kind: str) -> str:
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


def _workload(api: str, kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(node: str, gpus: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
