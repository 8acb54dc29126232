"""How much of a pool is out of service while a play goes on, by the same rule as its budget.

Must not know why a node is taken up.
"""

from libs.forecast.play_result import CapacityLoss
from libs.rollout import budget
from libs.rollout.node_writes import current_record
from libs.rollout.views.node import NodeView


class CapacityTracker:
    """Of the nodes of one pool. Seconds are counted from the beginning."""

    def __init__(self) -> None:
        self.loss = CapacityLoss(nodes=0, gpus=0, at=0.0)
        """The largest so far: the first time that so many nodes were out."""
        self._out: dict[str, tuple[float | None, int]] = {}
        """Since when, and with how many GPUs; None: from the beginning."""
        self._gpus = 0
        self._spells: list[tuple[int, float, float]] = []

    def observe(self, node: NodeView, at: float, *, first: bool = False) -> None:
        """The node as it is now."""
        if budget.unavailable_reason(node, current_record(node)):
            self.node_lost(node.name, node.gpus, None if first else at)
        elif node.name in self._out:
            since, gpus = self._out.pop(node.name)
            self._gpus -= gpus
            if since is not None:
                self._spells.append((gpus, since, at))

    def node_lost(self, name: str, gpus: int, at: float | None) -> None:
        """A node goes out of service; None: it was from the beginning."""
        if name not in self._out:
            self._out[name] = (at, gpus)
            self._gpus += gpus

    def update(self, at: float) -> None:
        """All nodes were seen that changed at this moment."""
        if len(self._out) > self.loss.nodes:
            self.loss = CapacityLoss(nodes=len(self._out), gpus=self._gpus, at=at)

    def gpu_seconds(self, until: float) -> float:
        """Lost by then, of nodes that were in service at the beginning or came back into it."""
        open_ = [(gpus, since, until) for since, gpus in self._out.values() if since is not None]
        return sum(
            gpus * (min(to, until) - since)
            for gpus, since, to in (*self._spells, *open_)
            if since < until
        )
