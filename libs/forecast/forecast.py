"""A plan's answer, with what its plays showed beside that.

Times are seconds from the moment of the plan; None is unknown, never a guess.
"""

from collections.abc import Mapping

import msgspec

from libs.contracts.queries import PlanAnswer
from libs.forecast.play_result import ProofDelay
from libs.rollout.plan_time import PlanTime

_ENOUGH_PLAYS = 10
"""Minimum number of plays to distinguish chance from a cause."""


class ProofForecast(msgspec.Struct, frozen=True, kw_only=True):
    threshold: int
    """Number of nodes that have to succeed."""
    after: PlanTime
    delay: ProofDelay | None
    """The longest delay caused by others; None: none worth mentioning."""


class RequiredLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that complete the rollout in time."""

    max_unavailable: int | None
    """None: no number is sufficient, or none can be determined."""
    max_parallel: int | None = None
    """The value it has to be changed to; None: no change needed."""
    why: str


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and what only its remarks tell: an answer has no fields for that."""

    answer: PlanAnswer
    plays: int
    failed: Mapping[str, int] = {}
    """In how many plays a node failed and did not recover; others did in none."""
    halted_plays: int = 0
    """Number of plays in which the target is halted in the end."""
    proof: ProofForecast | None = None
    """None: the target needs no proof."""
    required_limits: RequiredLimits | None = None
    """None: not requested."""

    @property
    def failing(self) -> tuple[str, ...]:
        """Return the nodes that probably fail; with few plays, only those with a known cause."""
        return tuple(
            node.node
            for node in self.answer.nodes
            if 2 * self.failed.get(node.node, 0) > self.plays
            and (self.plays >= _ENOUGH_PLAYS or node.blocked_by)
        )

    @property
    def failing_by_chance(self) -> int:
        """Return how many others usually fail, without being the same in each play."""
        others = sum(self.failed.values()) / self.plays - len(self.failing)
        return round(others) if others >= 1 else 0

    @property
    def upgraded(self) -> int:
        """Return how many nodes are upgraded in the end, as far as that is known."""
        failing = set(self.failing)
        nodes = self.answer.nodes
        ended = sum(node.end_p50 is not None and node.node not in failing for node in nodes)
        return max(0, ended - self.failing_by_chance)
