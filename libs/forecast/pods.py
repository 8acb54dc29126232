"""Effects of a plan on pods: evicted, lost, or kept by a disruption budget.

Pods of nodes whose pods are not watched are known by uid only.
"""

from collections import defaultdict
from collections.abc import Iterable

from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView


class PodEffects:
    def __init__(self, fleet: Fleet) -> None:
        self._pods: dict[str, WorkloadPod] = {}
        self._uids: set[str] = set()
        """Pods reported by agents."""
        self._budgets = fleet.budgets or {}
        self._gangs: defaultdict[str, list[tuple[str, WorkloadPod]]] = defaultdict(list)
        self.unwatched_nodes = 0
        """Number of nodes without a watch on their pods."""
        for node in fleet.nodes.values():
            self._add(node)

    def _add(self, node: NodeView) -> None:
        if node.usage is not None:
            self._uids.update(use.pod_uid for use in node.usage.pods if use.gpus)
        if node.pods is None:
            self.unwatched_nodes += 1
        for pod in node.pods or ():
            self._pods[pod.uid] = pod
            if pod.gang:
                self._gangs[pod.gang].append((node.name, pod))

    def evicted(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Return the pods' names, or uids where a name is unknown; pods created during the play
        are left out.
        """
        known = (uid for uid in uids if uid in self._pods or uid in self._uids)
        return tuple(sorted(self._display_name(uid) for uid in known))

    def lost(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Return the pods that lose data or work by an eviction, each with the loss."""
        found = [
            (self._pods[uid].display_name, self._losses(uid)) for uid in uids if uid in self._pods
        ]
        return tuple(sorted(f"{name} ({loss})" for name, loss in found if loss))

    def without_place(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Return the pods that would fit on no other node now, each with the reason."""
        found = [self._pods[uid] for uid in uids if uid in self._pods]
        return tuple(
            sorted(f"{pod.display_name} ({pod.no_place})" for pod in found if pod.no_place)
        )

    def blocked_by(self, node: NodeView) -> tuple[str, ...]:
        """Return the disruption budgets that refuse evictions on the node, or would."""
        budgets = {f"{pod.budget} (keeps {pod.display_name})" for pod in self._guarded(node)}
        for eviction in node.evictions:
            pod = self._pods.get(eviction.uid)
            if eviction.refused and not (pod is not None and pod.budget):
                budgets.add(f"{self._display_name(eviction.uid)}: {eviction.refused}")
        return tuple(sorted(budgets))

    def _guarded(self, node: NodeView) -> Iterable[WorkloadPod]:
        return (
            pod
            for pod in node.pods or ()
            if pod.budget
            and not pod.deleting
            and not self._budgets.get(pod.budget)
            and pod.exemption is EvictionExemption.NONE
            and (pod.gpu or pod.drained)
        )

    def _display_name(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return f"the pod with uid {uid}" if pod is None else pod.display_name

    def _losses(self, uid: str) -> str:
        pod = self._pods[uid]
        losses: list[str] = []
        if pod.bare:
            losses.append("bare: nothing recreates it")
        if pod.empty_dir:
            losses.append("emptyDir: its files are deleted")
        if pod.gang:
            others = len(self._gangs[pod.gang]) - 1
            losses.append(f"of gang {pod.gang}, which stops as a whole: {others} more pods known")
        return "; ".join(losses)
