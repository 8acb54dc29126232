"""The scheduler, as far as it matters here: a pod that fits somewhere is bound there.

Where it may go is decided in `placing`. Must know nothing of who made the pod.
"""

from contextlib import ExitStack
from typing import Any

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.times import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.daemonsets.plan import target_node
from libs.testing.cluster.expectations import AssumedPods
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.pod_fit import Unschedulable, find_node
from libs.testing.cluster.views import PODS, Node, Pod

USER = "system:kube-scheduler"
MANAGER = "kube-scheduler"

BIND_SECONDS = 0.1
"""Seconds from a pod's creation to its binding."""

RETRY_AFTER = 300.0
"""Seconds after which a pod that fits nowhere is looked at again although nothing changed."""


class PodScheduler:
    """Binds pods, one after another: each decision knows those before it."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._assumed = AssumedPods()
        self._work = ControllerLoop("binder", self._bind, clock=clock, workers=1)
        self._waiting: dict[str, None] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.pods.on_change(self._pod_changed))
            stack.callback(self._seen.nodes.on_change(self._node_changed))
            for pod in self._seen.pods:
                self._pod_changed(None, pod)
            await self._work.run()

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is not None and _unbound(after):
            if before is None or before.metadata.uid != after.metadata.uid:
                self._work.queue.add_after(after.metadata.key, BIND_SECONDS)
            return
        bound = after or before
        if bound is None:
            return
        self._assumed.forget(bound.metadata.uid)
        self._waiting.pop(bound.metadata.key, None)
        if after is None or after.over:
            self._room()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is not None and (before is None or _may_help(before, after)):
            self._room()

    def _room(self) -> None:
        """What fitted nowhere may fit now."""
        for key in self._waiting:
            self._work.queue.add_after(key, BIND_SECONDS)

    async def _bind(self, key: str) -> float | None:
        pod = self._seen.pods.get(key)
        if pod is None or not _unbound(pod) or pod.metadata.uid in self._assumed:
            self._waiting.pop(key, None)
            return None
        decided = self._decided(pod)
        if isinstance(decided, Unschedulable):
            self._waiting[key] = None
            await self._refuse(pod, decided.message)
            return RETRY_AFTER
        # Before the request: the watch may tell of the binding before the answer comes.
        self._assumed.bind(pod, decided)
        try:
            await self._send(pod, decided)
        except NotFound:
            self._assumed.forget(pod.metadata.uid)
        except BaseException:
            self._assumed.forget(pod.metadata.uid)
            raise
        self._waiting.pop(key, None)
        return None

    def _decided(self, pod: Pod) -> str | Unschedulable:
        meant_for = target_node(pod)
        named = self._seen.nodes.get(meant_for)
        alone = () if named is None else (named,)
        candidates = alone if meant_for else self._seen.nodes
        return find_node(pod, candidates, self._pods_on, total=len(self._seen.nodes))

    async def _send(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace=meta.namespace, name=meta.name, subresource="binding")
        query = {"fieldManager": self._kube.manager}
        await self._kube.request("POST", path, query=query, body=binding)

    def _pods_on(self, node: str) -> list[Pod]:
        return [*self._seen.pods.by_index("node", node), *self._assumed.on(node)]

    async def _refuse(self, pod: Pod, message: str) -> None:
        before = pod.condition("PodScheduled")
        if before is not None and before.status == "False" and before.message == message:
            return
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "observedGeneration": pod.metadata.generation,
            "lastProbeTime": None,
            "lastTransitionTime": before.last_transition_time
            if before is not None and before.status == "False"
            else format_time(self._clock.now()),
        }
        await patch_status(self._kube, PODS, pod, {"conditions": [condition]})


def _unbound(pod: Pod) -> bool:
    ours = pod.spec.scheduler_name == "default-scheduler"
    return ours and not pod.spec.node_name and not pod.deleting and not pod.over


def _may_help(before: Node, after: Node) -> bool:
    """Whether a pod that did not fit may fit now; a cordon or a taint more makes no room."""
    lifted = before.spec.unschedulable and not after.spec.unschedulable
    return (
        lifted
        or before.metadata.labels != after.metadata.labels
        or before.status.allocatable != after.status.allocatable
        or any(taint not in after.spec.taints for taint in before.spec.taints)
    )
