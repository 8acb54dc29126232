"""What a target may still do to a pool (docs/states.md#harm): over sets of node uids.

Must not know nodes, nor who wants to start. A set is only ever added to, but for `validated`, which
is emptied when a person accepts another number of failures.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from libs.contracts.rollout import RolloutSpec, TargetRecord
from libs.policy.int_or_string import scaled_value
from libs.policy.kinds.strategy import StrategySpec


def threshold(strategy: StrategySpec, *, base: int) -> int:
    """T: so many nodes prove a target, and so many failures halt it."""
    return max(1, scaled_value(strategy.failure_threshold, base))


def accepted(spec: RolloutSpec, target: str) -> int:
    """How many failures of this target a person accepts."""
    release = spec.release
    return release.failures if release is not None and release.target == target else 0


def allowance(record: TargetRecord) -> int:
    """So many nodes may be in flight or broken while it proves itself."""
    return record.accepted + record.threshold


def is_halted(record: TargetRecord) -> bool:
    """Whether nobody may be started on it."""
    return len(record.failed) >= allowance(record)


def starts_left(record: TargetRecord, flying: set[str]) -> int | None:
    """How many more may start, unless it is halted; None: harm does not limit them any more.

    Less than none: not even one that is counted already.
    """
    if record.proven:
        return None
    return allowance(record) - len(flying.union(record.failed))


def updated_record(
    record: TargetRecord,
    spec: RolloutSpec,
    target: str,
    *,
    failed: Iterable[str],
    validated: Iterable[str],
    now: float,
) -> TargetRecord:
    """The record with what is newly known of its target; the same one where nothing is."""
    now_accepted = accepted(spec, target)
    if now_accepted != record.accepted:
        record = replace(record, accepted=now_accepted, validated=(), proven=False)
    if more := set(failed).difference(record.failed):
        record = replace(record, failed=tuple(sorted(more.union(record.failed))))
    record = _validated(record, validated, now)
    why = halted_reason(record)
    return record if why == record.halted_because else replace(record, halted_because=why)


def _validated(record: TargetRecord, validated: Iterable[str], now: float) -> TargetRecord:
    """What is proven stays so; a healed failure proves nothing."""
    more = sorted(set(validated).difference(record.failed, record.validated))
    free = record.threshold - len(record.validated)
    if more and free > 0:
        record = replace(record, validated=(*record.validated, *more[:free]))
    if not record.proven and len(record.validated) >= record.threshold:
        record = replace(record, proven=True, proven_at=now)
    return record


def halted_reason(record: TargetRecord) -> str:
    """Why it is halted; empty: it is not."""
    if not is_halted(record):
        return ""
    return f"{len(record.failed)} of {allowance(record)} allowed failures"


def last_good(targets: dict[str, TargetRecord]) -> str:
    """The newest target that was proven and is not halted."""
    good = [
        (record.proven_at, target)
        for target, record in targets.items()
        if record.proven and not is_halted(record)
    ]
    return max(good)[1] if good else ""


def can_be_dropped(record: TargetRecord) -> bool:
    """Whether a record need not be kept, if it is neither wanted, in flight nor the last-good."""
    return record.complete and record.proven and not is_halted(record)
