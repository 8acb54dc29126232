"""Random fleets: nodes in every situation, pools with every policy, any records.

Small, so that cases meet, and not necessarily reachable. A seed reproduces its fleet; this is
much faster than a Hypothesis strategy.
"""

from random import Random
from typing import Any, Final

from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import PodUse, Usage
from libs.contracts.rollout import (
    Brake,
    InFlight,
    Release,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.views.fleet import Instant, SourceState
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView, RolloutView
from tests.unit.rollout.allocate.builders import FINDING, checked
from tests.unit.rollout.builders import (
    EPOCH,
    NEW,
    NOW,
    OLD,
    POOL,
    done,
    failed,
    in_flight_node,
    instant,
    node,
    pool,
    required,
    without_driver,
)

OTHER: Final = "nvidiadriver-other"
STATES: Final = (
    UpgradeState.WAIT_FOR_JOBS_REQUIRED,
    UpgradeState.POD_DELETION_REQUIRED,
    UpgradeState.DRAIN_REQUIRED,
    UpgradeState.POD_RESTART_REQUIRED,
    UpgradeState.VALIDATION_REQUIRED,
)
TARGETS: Final = (NEW, OLD)

PLAIN: Final[dict[str, dict[str, Any]]] = {
    "away": {"ready": False},
    "cordoned": {"cordoned": True},
    "skip": {"skip": True},
    "excluded": {"excluded": True},
    "writing": {"write_pending": True},
    "last": {"upgrade_last": True},
    "lost": {"record": None},
    "garbled": {"record": MalformedAnnotation("no JSON")},
    "busy": {"usage": Usage(pods=(PodUse(pod_uid="p", gpus=4),))},
    "elsewhere": {"pool": OTHER},
    "nowhere": {"pool": ""},
}
WRITTEN: Final[dict[str, dict[str, Any]]] = {
    "outside": {"outside": True},
    "again": {"operation": Operation.VALIDATE},
    "asked": {"asked": True, "state": UpgradeState.UPGRADE_REQUIRED},
}
CHANGES: Final = (*PLAIN, *WRITTEN, "leased", "driverless")


def _changed(view: NodeView, change: str) -> NodeView:
    if change in PLAIN:
        return replace(view, **PLAIN[change])
    if change == "driverless":
        return without_driver(view)
    if change == "leased":
        lease = NodeLease(node_uid=view.uid, owner=LeaseOwner.HUMAN, token=1, since=0.0)
        return replace(view, lease=lease)
    if not isinstance(view.record, NodeRecord):
        return view
    record = replace(view.record, **WRITTEN[change])
    return replace(view, record=record, state=record.state)


def nodes(random: Random, name: str) -> NodeView:
    kind = random.choice(("clear",) * 4 + ("bare", "done", "required", "failed", "broken", "busy"))
    target = random.choice(TARGETS)
    match kind:
        case "clear":
            result = checked(required(name))
        case "bare":
            result = checked(node(name))
        case "done":
            result = done(name, target)
        case "required":
            result = _with_preflight(random, required(name))
        case "failed":
            result = failed(name, target)
        case "broken":
            result = checked(_changed(failed(name, OLD), "asked"))
        case _:
            result = in_flight_node(random.choice(STATES), name)
    for change in random.sample(CHANGES, random.choice((0, 0, 0, 1, 2))):
        result = _changed(result, change)
    return result


def _with_preflight(random: Random, view: NodeView) -> NodeView:
    asked = NOW - random.choice((1.0, 11.0, 65.0))
    answered = random.choice((None, asked + 0.5, asked - 70.0))
    findings = (FINDING,) if random.random() < 0.5 else ()
    return checked(view, *findings, asked=asked, answered=answered)


def in_flight_entries(random: Random, name: str) -> InFlight:
    return InFlight(
        node=name,
        token=random.choice((7, 8, 8, 8)),
        target=random.choice((NEW, NEW, OLD, "")),
        since=NOW - random.choice((5.0, 5.0, 5.0, 59.0, 500.0)),
        outside=random.random() < 0.25,
    )


def records(random: Random, uids: list[str]) -> TargetRecord:
    threshold = random.randint(1, 3)
    validated = random.sample(uids, random.randint(0, threshold))
    return TargetRecord(
        threshold=threshold,
        accepted=random.choice((0, 0, 1, 2)),
        failed=tuple(sorted(random.sample(uids, random.randint(0, 3)))),
        validated=tuple(validated),
        proven=random.random() < 0.5,
        proven_at=random.choice((1.0, 2.0)),
        complete=random.random() < 0.5,
    )


def pools(random: Random, names: list[str], key: str = POOL) -> PoolView:
    uids = [*(f"uid-{name}" for name in names), "gone-1", "gone-2"]
    in_flight_names = random.sample([*names, "gone"], random.randint(0, 4))
    status = RolloutStatus(
        target=random.choice(("", NEW)),
        phase=random.choice((RolloutPhase.PROVING, RolloutPhase.PROVEN, RolloutPhase.COMPLETE)),
        epoch=random.choice((EPOCH,) * 9 + (EPOCH - 1,)),
        base=random.randint(0, 6),
        frozen_since=random.choice((None,) * 19 + (NOW - 9,)),
        in_flight={f"uid-{name}": in_flight_entries(random, name) for name in in_flight_names},
        targets={target: records(random, uids) for target in TARGETS if random.random() < 0.5},
    )
    result = pool(
        random.choice((NEW, NEW, NEW, OLD)),
        upgrade={
            "max_parallel_upgrades": random.choice((0, 0, 1, 2)),
            "max_unavailable": random.choice(("25%", "50%", "100%", 0, 1, 2)),
        },
        strategy=StrategySpec(failure_threshold=random.choice(("5%", "50%", 2))),
    )
    return replace(
        result, key=key, rollout=rollouts(random, status), **_random_state(random, result.upgrade)
    )


def rollouts(random: Random, status: RolloutStatus) -> RolloutView | None:
    if random.random() < 0.05:
        return None
    release = Release(target=NEW, failures=random.randint(0, 3))
    spec = RolloutSpec(
        brake=random.choice((Brake.NONE,) * 18 + (Brake.PAUSE, Brake.FREEZE)),
        release=release if random.random() < 0.5 else None,
    )
    return RolloutView(
        uid="uid-of-rollout",
        revision="10",
        spec=spec,
        status=status,
        has_finalizer=random.random() < 0.5,
        write_pending=random.random() < 0.1,
    )


def _random_state(random: Random, upgrade: UpgradePolicy) -> dict[str, Any]:
    unchanged: dict[str, Any] = {}
    disabled: dict[str, Any] = {"upgrade": replace(upgrade, auto_upgrade=False)}
    return random.choice((unchanged,) * 12 + ({"errors": ("no image",)}, {"gone": True}, disabled))


def moments(random: Random, at: float = NOW) -> Instant:
    now = instant(at)
    sources = {
        name: replace(
            source,
            proved=at - random.choice((1.0, 1.0, 1.0, 1.0, 30.0, 95.0)),
            probed=random.choice((None, at - 2.0, at - 12.0)),
        )
        if random.random() < 0.25
        else source
        for name, source in now.visibility.sources.items()
    }
    foreign = "the GPU Operator" if random.random() < 0.05 else ""
    bus_down_since = at - 5.0 if random.random() < 0.05 else None
    visibility = replace(
        now.visibility, sources=sources, foreign_operator=foreign, bus_down_since=bus_down_since
    )
    return replace(now, visibility=visibility)


NAMES: Final = [f"n{number}" for number in range(9)]

__all__ = ["NAMES", "OTHER", "POOL", "SourceState", "moments", "nodes", "pools"]
