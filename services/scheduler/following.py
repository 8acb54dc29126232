"""Whose pods are looked at: of nodes in flight, and of those that are next, as far as that goes.

All pods of a large cluster are gigabytes: busy or idle of the rest comes from the agents' reports.
"""

from collections.abc import Iterable
from typing import Final

from libs.contracts.node import UpgradeState
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from services.scheduler.memory import Memory
from services.scheduler.tenants import WATCHED, Tenants

_RESTING: Final = frozenset({UpgradeState.UPGRADE_DONE.value, UpgradeState.UPGRADE_FAILED.value})


class Following:
    """Remembers which nodes are on their way, and which are to be."""

    def __init__(self, *, tenants: Tenants, memory: Memory) -> None:
        self._tenants = tenants
        self._memory = memory
        self._required: set[str] = set()
        """Nodes that are not where they should be, without a lease."""
        self._leased: set[str] = set()

    @property
    def unsettled(self) -> set[str]:
        """Nodes that are not where they should be, with a lease or without."""
        return self._required | self._leased

    def sort(self, name: str, view: NodeView | None) -> None:
        """This is how a node is seen now; None: not at all."""
        for names in (self._required, self._leased):
            names.discard(name)
        if view is None:
            return
        if view.lease is not None:
            self._leased.add(name)
        elif view.state not in _RESTING and (view.pool or view.driver_label):
            self._required.add(name)

    def follow(self, pools: Iterable[PoolView]) -> None:
        """Look at the pods of those for whom that counts now."""
        flying = {
            entry.node
            for pool in pools
            if pool.rollout is not None
            for entry in pool.rollout.status.in_flight.values()
        }
        first = sorted(flying | self._leased)
        asked = sorted(self._asked() - flying - self._leased)
        room = max(0, WATCHED - len(first) - len(asked))
        rest: Iterable[str] = ()
        if room:
            rest = sorted(self._required.difference(first, asked))[:room]
        self._tenants.follow([*first, *asked, *rest])

    def _asked(self) -> set[str]:
        """Nodes that are next: their agents were asked lately."""
        return {name for name in self._required if self._memory.of(name).asked is not None}
