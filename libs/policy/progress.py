"""How far a policy is, for pipelines: Helm, Flux, Argo CD and `kubectl wait`.

By the rules of kstatus they ask of any object whether the generation that they wrote was observed;
then whether it is Stalled (it failed) or Reconciling (it goes on); then whether it is Ready. The
conditions of NVIDIA's cannot tell them: an edited policy is Ready until somebody sees the edit, and
one whose rollout is halted is not Ready, like one that goes on.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from libs.contracts.rollout import ConditionStatus, ConditionType, RolloutPhase, RolloutStatus
from libs.contracts.words import first_sentences
from libs.policy.pool import Pool

RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"


class ObservedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler says of the rollout of a pool."""

    target: str
    because: str = ""
    """Why nothing starts; empty: nodes may start, or nothing has to."""
    halted: str = ""
    """Why the target is halted, and how that ends; empty: it is not."""
    paused: str = ""
    """The reason of the condition Paused, in one word; empty: it is not paused."""
    is_complete: bool = False
    """Whether nothing is left to do."""


class Progress(NamedTuple):
    """Whether a policy's change goes on or is stuck; neither, with no reason: it is done."""

    stalled: bool
    reason: str
    message: str


DONE: Final = Progress(stalled=False, reason="", message="")

_NOTHING_LEFT: Final = (RolloutPhase.COMPLETE, RolloutPhase.NO_NODES)


def observe_rollout(status: RolloutStatus) -> ObservedRollout:
    true = {each.type: each for each in status.conditions if each.status is ConditionStatus.TRUE}
    halted, paused = true.get(ConditionType.HALTED), true.get(ConditionType.PAUSED)
    return ObservedRollout(
        target=status.target,
        because=status.because,
        halted="" if halted is None else halted.message,
        paused="" if paused is None else paused.reason,
        is_complete=status.phase in _NOTHING_LEFT or status.is_complete,
    )


class PoolProgress(NamedTuple):
    """A pool, the target that its policy wants now, and what the scheduler says of its rollout."""

    pool: Pool
    target: str
    rollout: ObservedRollout | None

    @property
    def is_observed(self) -> bool:
        """Whether the scheduler's decisions are about the driver that the policy wants now.

        A pool of no node has no Rollout before its first node comes.
        """
        if self.rollout is None:
            return not self.pool.nodes
        return self.rollout.target == self.target

    @property
    def waits_for_people(self) -> bool:
        """Whether nothing starts by itself, because `autoUpgrade` is off: that is what was asked
        for, so a pipeline does not wait for it."""
        return not self.pool.upgrade.auto_upgrade


def rollouts_progress(pools: Sequence[PoolProgress]) -> Progress:
    """Return how far the rollouts of a policy are; one that is halted comes before all others."""
    halted = [each.rollout.halted for each in pools if each.rollout and _is_halted(each)]
    if halted:
        return Progress(stalled=True, reason="Halted", message=first_sentences(halted, 3))
    unseen = [each.pool.key for each in pools if not each.is_observed]
    if unseen:
        message = f"the scheduler has not taken up the change yet: {', '.join(unseen)}"
        return Progress(stalled=False, reason="NotTakenUp", message=message)
    return next(_unfinished(pools), DONE)


def _is_halted(each: PoolProgress) -> bool:
    return each.is_observed and each.rollout is not None and bool(each.rollout.halted)


def _unfinished(pools: Sequence[PoolProgress]) -> Iterator[Progress]:
    for each in pools:
        rollout = each.rollout
        if rollout is None or rollout.is_complete or each.waits_for_people:
            continue
        if rollout.paused:
            yield Progress(stalled=False, reason=rollout.paused, message=rollout.because)
        message = rollout.because or f"Rollout {each.pool.key} is under way"
        yield Progress(stalled=False, reason="RollingOut", message=message)
