"""Report Rollouts: granted starts, changes of phase and target, and what people set.

No decision depends on these events: one that is lost costs people a line, and nothing else.
"""

from typing import Final

from libs.bus.events import EventPublisher
from libs.contracts.events import GrantEvent, RolloutEvent
from libs.contracts.rollout import RolloutPhase, RolloutStatus
from libs.kube.events import EventRecorder, InvolvedObject
from libs.rollout.decision import WriteRollout
from libs.rollout.pool import harm
from libs.rollout.views.pool import PoolView
from services.scheduler.driver_names import DriverNames
from services.scheduler.resources import ROLLOUTS, Rollout
from services.scheduler.rollout_texts import brake_text, phase_text, release_text, released

REASON: Final = "GPUDriverUpgrade"
NODES_PER_EVENT: Final = 50
"""Nodes in one event of a grant, so that it is never too large for the stream."""


class RolloutEvents:
    """The reports of one leader about Rollouts."""

    def __init__(
        self, kube_events: EventRecorder, publisher: EventPublisher, drivers: DriverNames
    ) -> None:
        self._kube_events, self._publisher, self._drivers = kube_events, publisher, drivers

    def written(self, write: WriteRollout, before: PoolView | None, revision: str) -> None:
        """Report the granted starts, and a change of phase or target."""
        status, rollout = write.status, before.rollout if before is not None else None
        for start in range(0, len(write.granted), NODES_PER_EVENT):
            nodes = write.granted[start : start + NODES_PER_EVENT]
            grant = GrantEvent(
                pool=write.pool,
                target=status.target,
                epoch=status.epoch,
                nodes=nodes,
                limit=status.counts.limit,
                unavailable=status.counts.unavailable,
            )
            message = f"{write.pool}: upgrade granted to {', '.join(nodes)}"
            event_id = f"grant/{write.pool}/{revision}/{start}"
            self._publisher.publish(grant, id=event_id, message=message)
        old = rollout.status if rollout is not None else None
        before_phase, phase = None if old is None else _told_phase(old), _told_phase(status)
        if old is not None and (before_phase, old.target) == (phase, status.target):
            return
        change = _event(
            write.pool,
            status,
            "" if before_phase is None else before_phase.value,
            phase.value,
            status.because or write.because,
        )
        if before is None or old is None:
            text = "Rollout created; its status shows the progress"
        else:
            text = phase_text(change, threshold=_threshold(before, status))
        self._publisher.publish(
            change,
            id=f"rollout/{write.pool}/{revision}",
            message=self._drivers.named(f"{write.pool}: {text}"),
        )

    def changed(self, before: Rollout | None, after: Rollout | None) -> None:
        """Report a brake that was set, and a halt that was released."""
        if before is None or after is None or before.metadata.uid != after.metadata.uid:
            return
        self._spec_changed(
            after, "brake", before.spec.brake.value, after.spec.brake.value, brake_text(after)
        )
        self._spec_changed(after, "release", released(before), released(after), release_text(after))

    def failed(self, write: WriteRollout, why: str) -> None:
        """Report a failed write of a Rollout, unless the Rollout does not exist yet."""
        if write.uid:
            reference = InvolvedObject(
                api_version=ROLLOUTS.api_version,
                kind=ROLLOUTS.kind,
                name=write.pool,
                uid=write.uid,
            )
            message = self._drivers.named(f"Failed to write the Rollout ({write.because}): {why}")
            self._kube_events.record(
                reference, type="Warning", reason=REASON, message=message, group="failed"
            )

    def _spec_changed(
        self, rollout: Rollout, field: str, before: str, after: str, text: str
    ) -> None:
        if before == after:
            return
        metadata, status = rollout.metadata, rollout.status
        change = _event(metadata.name, status, before, after, field)
        self._publisher.publish(
            change,
            id=f"{field}/{metadata.uid}/{metadata.generation}",
            message=self._drivers.named(f"{metadata.name}: {text}"),
        )


def _event(pool: str, status: RolloutStatus, before: str, after: str, because: str) -> RolloutEvent:
    counts = status.counts
    return RolloutEvent(
        pool=pool,
        target=status.target,
        before=before,
        after=after,
        because=because,
        failed=counts.failed,
        done=counts.done,
        total=counts.total,
    )


def _told_phase(status: RolloutStatus) -> RolloutPhase:
    """Return the phase that people are told.

    A driver that is complete, but for nodes that go on with it, is neither proven nor complete
    anew: people would take that for another upgrade.
    """
    return RolloutPhase.COMPLETE if status.is_complete else status.phase


def _threshold(pool: PoolView, status: RolloutStatus) -> int:
    """Return how many validated nodes prove the target; its record begins with the first grant."""
    record = status.targets.get(status.target)
    base = status.base or status.counts.total
    return harm.threshold(pool.strategy, base=base) if record is None else record.threshold
