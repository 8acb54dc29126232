"""What an administrator does with kubectl and manifests."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from libs.contracts.identities import CLUSTER_WRITERS, Writer
from libs.contracts.node import DRIVER_LABEL
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.errors import NotFound
from libs.kube.requests import Transport
from libs.kube.resources import LEASES, Resource
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects, service_account_of
from libs.testing.cluster.views import REPLICA_SETS
from services.scheduler import resources
from tests.builders.objects import replica_set
from tests.component.campaign.roles import NAMESPACE
from tests.component.policy.strict_writes import object_path, send
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, drivers, node

RBAC = "rbac.authorization.k8s.io/v1"
POOL = "clusterpolicy-cluster-policy"
OLD, NEW = "570.86.15", "580.95.05"


class CampaignAdmin:
    def __init__(self, kube: Kube, transport: Transport) -> None:
        self.kube = kube
        self.target = ""
        self.label = ""
        self.version = ""
        """The version of the driver in the ClusterPolicy."""
        self._transport = transport
        self._upgrade: dict[str, Any] = {"autoUpgrade": True}

    async def install(self) -> None:
        """Install accounts, leases and CRDs, without starting services."""
        for obj in installation_objects(NAMESPACE):
            if obj["apiVersion"] != RBAC:
                await self.apply(obj)
        for writer in CLUSTER_WRITERS:
            if writer is not Writer.CTL:
                name = service_account_of(writer)
                lease = {"metadata": {"name": name, "labels": {"app": name}}}
                await self.kube.create(LEASES, lease, namespace=NAMESPACE)
        for definition in crd_manifests().values():
            await self.apply(definition)

    async def apply_policy(self, version: str = "", **upgrade: Any) -> None:
        """Apply the ClusterPolicy; omitted settings stay as they are."""
        self.version = version = version or self.version
        self._upgrade |= upgrade
        driver = {"repository": "r.example/nvidia", "image": "driver", "version": version}
        policy = cluster_policy(driver={**driver, "upgradePolicy": self._upgrade})
        response = await self.apply(policy)
        applied = {**policy, "metadata": response["metadata"]}
        (rendered,) = drivers(Situation([applied], [node("any")]).rendering(SETTINGS))
        self.target = rendered["metadata"]["annotations"]["sluice.dev/target"]
        self.label = rendered["metadata"]["labels"][DRIVER_LABEL]

    async def remove_policy(self) -> None:
        """Delete the ClusterPolicy, if there is one."""
        path = resources.POLICIES["ClusterPolicy"].path(name="cluster-policy")
        with suppress(NotFound):
            await self.kube.request("DELETE", path)

    async def apply(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """`kubectl apply --server-side`; uids are left to the server."""
        metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
        status, _, response = await send(
            self._transport,
            "PATCH",
            object_path(dict(obj)),
            {**obj, "metadata": metadata},
            content=APPLY_PATCH,
            force="true",
            fieldManager="kubectl",
        )
        assert status in (200, 201), response
        return response

    async def change(self, resource: Resource[Any], name: str, change: Any) -> None:
        """`kubectl patch --type=merge`, at any revision."""
        path = resource.path(name=name)
        query = {"fieldManager": "kubectl"}
        await self.kube.request("PATCH", path, query=query, body=change, content_type=MERGE_PATCH)

    async def create_service(self, name: str, node: str, *, gpus: int = 2) -> None:
        """Create a ReplicaSet that uses GPUs on this node."""
        there = {"kubernetes.io/hostname": node}
        service = replica_set(name, image="train:1", gpus=gpus, nodeSelector=there)
        await self.kube.create(REPLICA_SETS, service, namespace="default")

    async def rollout(self) -> resources.Rollout | None:
        try:
            return await self.kube.get(resources.ROLLOUTS, POOL)
        except NotFound:
            return None
