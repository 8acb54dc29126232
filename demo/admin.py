"""The actions of the administrator in the demo, with the requests that kubectl would send."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from demo.fleet import FleetPool
from demo.paths import NAMESPACE
from libs.contracts.identities import CLUSTER_WRITERS, Writer
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.authors import COMMAND
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.resources import LEASES
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects, service_account_of
from libs.policy.kinds import KINDS
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER

USER: Final = "person"
MANAGER: Final = "kubectl"
POLICY: Final = "cluster-policy"
POOL: Final = f"clusterpolicy-{POLICY}"
"""The pool of a fleet whose driver the ClusterPolicy names: `apply_policy`."""
MAX_UNAVAILABLE: Final = 1
WAITED_FOR: Final = "waited-for"
"""The label of pods that an upgrade has to wait for."""
_RBAC: Final = "rbac.authorization.k8s.io"
_SECTIONS: Final = (
    "operator", "daemonsets", "toolkit", "devicePlugin", "dcgm", "dcgmExporter",
    "nodeStatusExporter", "gfd",
)  # fmt: skip

_IMAGE: Final = {"repository": "nvcr.example/nvidia", "image": "driver"}
_WAIT: Final = {"podSelector": f"{WAITED_FOR}=true"}
WORKLOADS: Final = "default"
"""The namespace of workloads."""

Object = Mapping[str, Any]


class DemoAdmin:
    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def install(self, *, with_rights: bool = False) -> None:
        """Create custom resource definitions, namespace, service accounts and leader leases.

        `with_rights`: their roles too, which the simulated API server does not have.
        """
        for definition in crd_manifests().values():
            await self.apply(definition)
        for manifest in installation_objects(NAMESPACE):
            if with_rights or not manifest["apiVersion"].startswith(_RBAC):
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
            "waitForCompletion": _WAIT,
        }
        driver = {**_IMAGE, "version": version, "upgradePolicy": upgrade}
        await self.apply(_cluster_policy(driver))

    async def apply_pools(self, pools: Iterable[FleetPool], version: str) -> None:
        """Apply a ClusterPolicy without a driver, and create an NVIDIADriver for each pool.

        One that was applied would be a file's, from which `sluice upgrade start` takes no version.
        """
        await self.apply(_cluster_policy({"useNvidiaDriverCRD": True}))
        for pool in pools:
            upgrade = {
                "maxParallelUpgrades": 0,
                "maxUnavailable": pool.max_unavailable,
                "waitForCompletion": _WAIT,
            }
            spec = {
                **_IMAGE,
                "default": False,
                "driverType": "gpu",
                "version": version,
                "nodeSelector": pool.selector,
                "upgradePolicy": upgrade,
            }
            metadata = {"name": pool.name}
            await self._create(
                {
                    "apiVersion": NVIDIA_DRIVER.api_version,
                    "kind": NVIDIA_DRIVER.name,
                    "metadata": metadata,
                    "spec": spec,
                }
            )

    async def set_pool_version(self, pool: FleetPool, version: str) -> None:
        """Change the driver version of a pool, as `kubectl patch nvidiadriver` does."""
        path = path_of(NVIDIA_DRIVER.api_version, NVIDIA_DRIVER.name, name=pool.name)
        await self._merge(path, {"spec": {"version": version}})

    async def set_driver_version(self, version: str) -> None:
        """Change the driver version, as `kubectl patch clusterpolicy` does."""
        await self._merge(
            path_of("nvidia.com/v1", "ClusterPolicy", name=POLICY),
            {"spec": {"driver": {"version": version}}},
        )

    async def write_rollout(self, pool: str, patch: Object) -> None:
        """Write what `sluice` decided on a Rollout, as it does."""
        path = path_of("sluice.dev/v1alpha1", "Rollout", name=pool)
        await self._merge(path, patch, manager=COMMAND)

    async def retry_node(self, node: str) -> None:
        """Request another attempt on a node, as `sluice upgrade retry` does."""
        labels = {STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value}
        body = {"metadata": {"labels": labels}}
        await self._merge(f"/api/v1/nodes/{node}", body, manager=COMMAND)

    async def cordon(self, node: str) -> None:
        """Keep new pods away from a node, as `kubectl cordon` does."""
        await self._merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    async def create_service(self, name: str, selector: Mapping[str, str], *, gpus: int) -> None:
        """Create a service with GPUs, whose pods are replaced when they are evicted."""
        labels = {"app": name}
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(selector, gpus)},
        }
        await self.apply(_workload("apps/v1", "ReplicaSet", name, spec))

    async def scale_service(self, name: str, replicas: int) -> None:
        """Change the number of a service's pods, as `kubectl scale replicaset` does."""
        path = path_of("apps/v1", "ReplicaSet", name=name, namespace=WORKLOADS)
        await self._merge(path, {"spec": {"replicas": replicas}})

    async def create_budget(self, service: str) -> None:
        """Create a PodDisruptionBudget that keeps one pod of a service running."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": service}}}
        await self.apply(_workload("policy/v1", "PodDisruptionBudget", service, spec))

    async def create_job(self, name: str, selector: Mapping[str, str], *, gpus: int) -> None:
        """Create a job with GPUs, which the upgrade has to wait for."""
        template = {
            "metadata": {"labels": {"app": name, WAITED_FOR: "true"}},
            "spec": {**_pod(selector, gpus), "restartPolicy": "Never"},
        }
        await self.apply(_workload("batch/v1", "Job", name, {"template": template}))

    async def create_pod(self, writer: Writer) -> Object:
        """Create the pod of a service and return a reference to it.

        The service runs beside the cluster, so the pod is only shown as running: no scheduler of
        the cluster gives it a node.
        """
        spec = {
            "serviceAccountName": service_account_of(writer),
            "schedulerName": "none",
            "containers": [{"name": writer.value, "image": "registry.example/sluice:demo"}],
        }
        name = service_account_of(writer)
        metadata = {"name": name, "namespace": NAMESPACE}
        await self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        path = path_of("v1", "Pod", name=name, namespace=NAMESPACE)
        await self._merge(f"{path}/status", {"status": {"phase": "Running"}})
        uid = msgspec.json.decode(await self.read(path))["metadata"]["uid"]
        return pod_reference(name, uid)

    async def token_of(self, account: str, **spec: Any) -> str:
        """Request a token of a service account, as a kubelet does for a pod."""
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": spec,
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        answer = await self._kube.request("POST", path, body=body)
        return msgspec.json.decode(answer)["status"]["token"]

    async def read(self, path: str) -> bytes:
        return await self._kube.request("GET", path)

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

    async def _create(self, obj: Object) -> None:
        """Create an object without a namespace, as `kubectl create` does."""
        path, _, _ = path_of(obj["apiVersion"], obj["kind"], name="").rpartition("/")
        await self._kube.request("POST", path, query={"fieldManager": MANAGER}, body=obj)

    async def _merge(self, path: str, body: Object, *, manager: str = MANAGER) -> None:
        query = {"fieldManager": manager}
        await self._kube.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)


def pod_reference(name: str, uid: str) -> Object:
    """Return how a request for a token names the pod that it is for."""
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


def path_of(api: str, kind: str, *, name: str, namespace: str = "") -> str:
    """Return the API path of an object."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    plural = KINDS[kind].plural if kind in KINDS else _plural(kind.lower())
    return f"{root}{scope}/{plural}/{name}"


def _plural(kind: str) -> str:
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


def _cluster_policy(driver: Object) -> Object:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": POLICY},
        "spec": {section: {} for section in _SECTIONS} | {"driver": driver},
    }


def _workload(api: str, kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": WORKLOADS}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(selector: Mapping[str, str], gpus: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {"containers": [container], "nodeSelector": dict(selector)}
