"""What the record of a pool allows at one moment: computed once per decision, before the steps of
its nodes.
"""

from collections.abc import Mapping

import msgspec

from libs.contracts.rollout import InFlight


class PoolConstraints(msgspec.Struct, frozen=True, kw_only=True):
    leading: bool = True
    """Our epoch is in the Rollout. Otherwise nothing is done to any node of the pool."""
    may_mark_required: bool = True
    """Needed upgrades are written as `upgrade-required`; False if `autoUpgrade` was never on."""
    paused: str = ""
    """Why nothing starts, for a person; empty: nodes may start."""
    frozen: bool = False
    """Nothing moves, and clocks stand still."""
    frozen_seconds: float = 0.0
    """How long the pool was frozen in total: deadlines move by what was added after they were set.
    """
    in_flight: Mapping[str, InFlight] = {}
    """Granted nodes as the API server has them, by node uid."""
    may_begin: frozenset[str] = frozenset()
    """Uids of granted nodes whose cordon still fits into the budget."""
    to_release: Mapping[str, str] = {}
    """Uids of nodes in flight that must be released unchanged if they have not started, and why."""
    halted: Mapping[str, str] = {}
    """Targets on which no node may start, and why."""
    proven: frozenset[str] = frozenset()
    """Targets that were proven and are not halted."""
    last_good: str = ""
    """The newest proven target, which joining nodes get while the wanted one is halted."""

    def admits(self, target: str) -> bool:
        return target not in self.halted
