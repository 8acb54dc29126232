"""What the record of a pool comes to at one moment; made once per decision, before its nodes.

A node's step asks here what its pool allows. How it is reckoned is not known here.
"""

from collections.abc import Mapping

import msgspec

from libs.contracts.rollout import InFlight


class PoolConstraints(msgspec.Struct, frozen=True, kw_only=True):
    """What is allowed in a pool now."""

    leading: bool = True
    """Our epoch is in the Rollout: effects may be had. Else nothing is done to any of its nodes."""
    may_mark_required: bool = True
    """New wishes are written down as `upgrade-required`; not so if `autoUpgrade` was never on."""
    paused: str = ""
    """Why nothing starts here, for a person; empty: things may start."""
    frozen: bool = False
    """Nothing moves, and clocks stand still."""
    frozen_seconds: float = 0.0
    """How long it was frozen in all, up to now: deadlines are moved by what came after them."""
    in_flight: Mapping[str, InFlight] = {}
    """What is granted, as the API server has it; by node uid."""
    may_begin: frozenset[str] = frozenset()
    """Uids of granted nodes whose cordon still fits into the budget."""
    to_release: Mapping[str, str] = {}
    """Uids of nodes in flight that must go back unchanged if they have not started, and why."""
    halted: Mapping[str, str] = {}
    """Targets on which nobody is started, and why."""
    proven: frozenset[str] = frozenset()
    """Targets that were proven and are not halted."""
    last_good: str = ""
    """The newest of them that nodes may join while the wanted one is halted."""

    def admits(self, target: str) -> bool:
        """Whether a node may be started on it, as far as harm is concerned."""
        return target not in self.halted
