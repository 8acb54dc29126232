"""Track unavailable capacity during a play, by the same rule as the budget."""

from libs.forecast.play_result import CapacityLoss
from libs.rollout.node_writes import current_record
from libs.rollout.pool.contribution import unavailable_reason
from libs.rollout.views.node import NodeView


class CapacityTracker:
    """Unavailable nodes of one pool. Times are seconds since the beginning."""

    def __init__(self) -> None:
        self.loss = CapacityLoss(nodes=0, gpus=0, at=0.0)
        """The largest loss so far; the earliest of several."""
        self._unavailable: dict[str, tuple[float | None, int]] = {}
        """Unavailable nodes: since when (None: from the beginning) and GPUs."""
        self._gpus = 0
        self._outages: list[tuple[int, float, float]] = []

    def observe(self, node: NodeView, at: float, *, first: bool = False) -> None:
        if unavailable_reason(node, current_record(node)):
            self.node_lost(node.name, node.gpus, None if first else at)
        elif node.name in self._unavailable:
            since, gpus = self._unavailable.pop(node.name)
            self._gpus -= gpus
            if since is not None:
                self._outages.append((gpus, since, at))

    def node_lost(self, name: str, gpus: int, at: float | None) -> None:
        """Count a node as unavailable; None: from the beginning."""
        if name not in self._unavailable:
            self._unavailable[name] = (at, gpus)
            self._gpus += gpus

    def update(self, at: float) -> None:
        """Update the largest loss once all changes of this moment are observed."""
        if len(self._unavailable) > self.loss.nodes:
            self.loss = CapacityLoss(nodes=len(self._unavailable), gpus=self._gpus, at=at)

    def gpu_seconds(self, until: float) -> float:
        """Return the GPU-seconds lost by nodes that became unavailable during the play."""
        open_ = [
            (gpus, since, until) for since, gpus in self._unavailable.values() if since is not None
        ]
        return sum(
            gpus * (min(to, until) - since)
            for gpus, since, to in (*self._outages, *open_)
            if since < until
        )
