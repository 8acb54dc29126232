"""Tells each kubelet how long it may believe what it read: longer, the larger the cluster is.

Nothing reads it here; but a real cluster writes it once on every Node, and so moves its revision.
"""

from contextlib import ExitStack

from libs.kube.client import Kube
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.views import NODES, Node

USER = "system:serviceaccount:kube-system:ttl-controller"
ANNOTATION = "node.alpha.kubernetes.io/ttl"

_STEPS = ((100, 0), (500, 15), (1_000, 30), (2_000, 60))
_MOST = 300


def seconds_for(nodes: int) -> int:
    """For a cluster of that size."""
    return next((seconds for limit, seconds in _STEPS if nodes <= limit), _MOST)


class TtlController:
    """Keeps that annotation of each Node; one that was right when written is left alone."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._work = ControllerLoop("ttl", self._annotate, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.nodes.on_change(self._node_changed))
            for node in self._seen.nodes:
                self._node_changed(None, node)
            await self._work.run()

    def _node_changed(self, _before: Node | None, after: Node | None) -> None:
        if after is not None and ANNOTATION not in after.metadata.annotations:
            self._work.queue.add(after.metadata.name)

    async def _annotate(self, name: str) -> None:
        node = self._seen.nodes.get(name)
        if node is None or ANNOTATION in node.metadata.annotations:
            return
        written = await self._kube.merge(
            NODES,
            name,
            {"metadata": {"annotations": {ANNOTATION: str(seconds_for(len(self._seen.nodes)))}}},
            resource_version=node.metadata.resource_version,
        )
        self._seen.nodes.record_write(written)
