"""Everybody else in the cluster: people, controllers and kubelets, whom no fault is about.

They make, change, move and delete objects, and make others of the same names. A restart of the
server meets them too; what fails so is left.
"""

import random as chance
from contextlib import suppress
from typing import Any

from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import KubeError
from libs.kube.resources import NODES, PODS, Resource
from tests.component.kube.builders import JsonObject, pod
from tests.component.kube.widgets import WIDGETS, widget
from tests.component.kube_storms.state_history import StateHistory

NAMES = [f"n{number}" for number in range(24)]
BYSTANDER_NAMESPACES = ("blue", "green")
POOLS = ("a", "b", None)


class Bystanders:
    """One pair of hands; what it does next is drawn."""

    def __init__(self, kube: Kube, truth: StateHistory, random: chance.Random) -> None:
        self._kube = kube
        self._truth = truth
        self._random = random
        self._count = 0

    async def create_initial_objects(self) -> None:
        """A cluster before the storm."""
        for name in NAMES:
            await self._create(NODES, node(name, pool=self._random.choice(POOLS)))
        for _ in range(40):
            await self._new_pod()
        for _ in range(10):
            await self._new_widget()

    async def write_once(self) -> None:
        """One write, or the try of one."""
        (act,) = self._random.choices(
            [
                self._label,
                self._annotate,
                self._cordon,
                self._new_node,
                self._new_pod,
                self._new_widget,
                self._bury,
                self._delete,
            ],
            weights=[5, 5, 2, 2, 6, 2, 3, 4],
        )
        with suppress(KubeError):
            await act()

    async def write_burst(self, count: int) -> None:
        """So many writes without a pause."""
        for _ in range(count):
            await self.write_once()

    async def _label(self) -> None:
        resource, view = self._any()
        await self._patch(resource, view, {"labels": {"pool": self._random.choice(POOLS)}})

    async def _annotate(self) -> None:
        resource, view = self._any()
        self._count += 1
        await self._patch(resource, view, {"annotations": {"seen": str(self._count)}})

    async def _cordon(self) -> None:
        resource, view = self._any()
        if resource is NODES:
            wanted = None if view.spec.unschedulable else True
            path = NODES.path(name=view.metadata.name)
            await self._send("PATCH", path, {"spec": {"unschedulable": wanted}})

    async def _new_node(self) -> None:
        name, pool = self._random.choice(NAMES), self._random.choice(POOLS)
        await self._create(NODES, node(name, pool=pool))

    async def _new_pod(self) -> None:
        pool = self._random.choice(POOLS)
        wanted = pod(
            f"p{self._random.randrange(40)}",
            node=self._random.choice([*NAMES[:5], ""]),
            labels={"pool": pool} if pool else {},
            grace=self._random.choice([0, 30]),
        )
        await self._create(PODS, wanted, namespace=self._random.choice(BYSTANDER_NAMESPACES))

    async def _new_widget(self) -> None:
        wanted = widget(f"w{self._random.randrange(12)}", size=self._random.randrange(10))
        await self._create(WIDGETS, wanted, namespace=self._random.choice(BYSTANDER_NAMESPACES))

    async def _bury(self) -> None:
        """What a kubelet does with a pod that shall go."""
        for view in self._truth.now(PODS):
            if view.metadata.deletion_timestamp:
                await self._remove(PODS, view, grace=0)
                return

    async def _delete(self) -> None:
        resource, view = self._any()
        await self._remove(resource, view)

    def _any(self) -> tuple[Resource[Any], Any]:
        everything = [
            (resource, view)
            for resource in (NODES, PODS, WIDGETS)
            for view in self._truth.now(resource)
        ]
        return self._random.choice(everything)

    async def _create(
        self, resource: Resource[Any], wanted: JsonObject, *, namespace: str = ""
    ) -> None:
        with suppress(KubeError):
            await self._kube.create(resource, wanted, namespace=namespace)

    async def _patch(self, resource: Resource[Any], view: Any, metadata: JsonObject) -> None:
        meta = view.metadata
        path = resource.path(namespace=meta.namespace, name=meta.name)
        await self._send("PATCH", path, {"metadata": metadata})

    async def _remove(
        self, resource: Resource[Any], view: Any, *, grace: int | None = None
    ) -> None:
        meta = view.metadata
        await self._kube.delete(
            resource, meta.name, uid=meta.uid, namespace=meta.namespace, grace=grace
        )

    async def _send(self, method: str, path: str, body: JsonObject) -> None:
        await self._kube.request(method, path, body=body, content_type=MERGE_PATCH)


def node(name: str, *, pool: str | None) -> JsonObject:
    """As a kubelet registers it."""
    return {"metadata": {"name": name, "labels": {"pool": pool} if pool else {}}}
