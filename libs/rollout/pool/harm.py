"""Bounded harm: how many failures of a target a pool tolerates (docs/states.md#harm).

Works on sets of node uids. Sets only grow, but for `validated`, which is emptied when a person
accepts another number of failures.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from libs.contracts.rollout import RolloutSpec, TargetRecord, Vanished
from libs.contracts.words import clock_time, first_few, plural
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.shapes import scaled_value

_NAMED: Final = 5
"""Vanished nodes that the reason of a halt names."""


def threshold(strategy: StrategySpec, *, base: int) -> int:
    """Return T: how many validated nodes prove a target, and how many failures halt it."""
    return max(1, scaled_value(strategy.failure_threshold, base))


def accepted(spec: RolloutSpec, target: str) -> int:
    """Return how many failures of this target a person has accepted."""
    release = spec.release
    return release.failures if release is not None and release.target == target else 0


def new_record(
    strategy: StrategySpec, spec: RolloutSpec, target: str, *, base: int
) -> TargetRecord:
    return TargetRecord(threshold=threshold(strategy, base=base), accepted=accepted(spec, target))


def allowance(record: TargetRecord) -> int:
    """Return how many nodes may be in flight or failed while the target is not proven."""
    return record.accepted + record.threshold


def is_halted(record: TargetRecord) -> bool:
    return record.is_halted


def starts_left(record: TargetRecord, in_flight: set[str]) -> int | None:
    """Return how many more nodes may start, unless halted; None: no limit by harm.

    A node that vanished keeps its place: nothing tells whether its driver took the machine down.
    Negative when more nodes are in flight or failed than the allowance permits.
    """
    if record.proven:
        return None
    return allowance(record) - len(in_flight.union(record.harmed))


def updated_record(
    record: TargetRecord,
    spec: RolloutSpec,
    target: str,
    *,
    failed: Iterable[str],
    validated: Iterable[str],
    vanished: Mapping[str, Vanished],
    now: float,
) -> TargetRecord:
    """Merge new results into the record; the same object if nothing is new."""
    now_accepted = accepted(spec, target)
    if now_accepted != record.accepted:
        if record.failed or not record.vanished:
            record = replace(record, validated=(), proven=False)
        record = replace(record, accepted=now_accepted)
    if not record.proven and (gone := vanished.keys() - record.vanished.keys()):
        new = {uid: vanished[uid] for uid in sorted(gone)}
        record = replace(record, vanished={**record.vanished, **new})
    if new := set(failed).difference(record.failed):
        record = replace(record, failed=tuple(sorted(new.union(record.failed))))
    record = _validated(record, validated, now)
    reason = halted_reason(record)
    return record if reason == record.halted_because else replace(record, halted_because=reason)


def _validated(record: TargetRecord, validated: Iterable[str], now: float) -> TargetRecord:
    """Add validations. A proven target stays proven; a node that failed on it proves nothing."""
    new = sorted(set(validated).difference(record.failed, record.validated))
    missing = record.threshold - len(record.validated)
    if new and missing > 0:
        record = replace(record, validated=(*record.validated, *new[:missing]))
    if not record.proven and len(record.validated) >= record.threshold:
        record = replace(record, proven=True, proven_at=now)
    return record


def completed_record(record: TargetRecord, *, complete: bool, now: float) -> TargetRecord:
    """Return the record of the wanted target once all nodes have it, or not any more.

    A target that is validated wherever it can be is proven, although fewer nodes take part than T:
    otherwise each node that joins would get the last-good driver, and then this one.
    """
    if complete and not record.proven and record.validated and not record.halted_because:
        record = replace(record, proven=True, proven_at=now)
    is_complete = complete and record.proven
    return record if is_complete == record.complete else replace(record, complete=is_complete)


def halted_reason(record: TargetRecord) -> str:
    if not is_halted(record):
        return ""
    accepted = f" {record.threshold}, {record.accepted} accepted" if record.accepted else ""
    limit = f"the limit is {allowance(record)} (failureThreshold{accepted})"
    failed = [f"{plural(len(record.failed), 'node')} failed"] if record.failed else []
    if record.is_halted_by_vanished:
        gone = [each for uid, each in record.vanished.items() if uid not in record.failed]
        since = (f"{each.node}, in flight since {clock_time(each.since)} UTC" for each in gone)
        names = first_few(since, _NAMED, between="; ")
        nodes = plural(len(gone), "node")
        failed.append(f"{nodes} vanished while the driver was changed ({names})")
    return f"by Sluice, as {' and '.join(failed)} and {limit}"


def last_good(targets: dict[str, TargetRecord]) -> str:
    """Return the newest target that was proven and is not halted."""
    proven = [
        (record.proven_at, target)
        for target, record in targets.items()
        if record.proven and not is_halted(record)
    ]
    return max(proven)[1] if proven else ""


def can_be_dropped(record: TargetRecord) -> bool:
    """Whether the record may go once the target is not wanted, in flight or last-good."""
    return record.complete and record.proven and not is_halted(record)
