"""What `sluice doctor` says of pools: what stopped them, and which nodes people have."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.contracts.rollout import (
    BRAKE_REASON,
    BRAKE_SET_BY,
    Brake,
    Counts,
    InFlight,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.ctl.checks import Check, CheckedNode, Verdict
from libs.ctl.pool_checks import Strategy, StrategySpec, pool_checks, skipping_pools
from libs.fleet.pools import Rollout
from libs.kube.authors import COMMAND
from libs.kube.views import ManagedFields, Metadata, NodeSpec, format_time
from tests.builders.fleet import written

NOW = 1_800_000_000.0
ALICE = {BRAKE_SET_BY: "alice", BRAKE_REASON: "the storage is down"}
GOING = RolloutStatus(
    phase=RolloutPhase.PROVEN,
    version="580.95.05",
    target="new",
    progress="1/3",
    counts=Counts(total=3, done=1),
    targets={"new": TargetRecord(threshold=1)},
)
FAILED = TargetRecord(threshold=1, failed=("uid-node-2",), halted_because="by Sluice")


def owned(manager: str, fields: dict[str, Any], *, ago: float) -> ManagedFields:
    return ManagedFields(
        manager=manager,
        time=format_time(NOW - ago),
        fields_v1=msgspec.Raw(msgspec.json.encode({"f:spec": fields})),
    )


def rollout(brake: Brake = Brake.NONE, status: RolloutStatus = GOING) -> Rollout:
    fields = () if brake is Brake.NONE else (owned(COMMAND, {"f:brake": {}}, ago=720),)
    metadata = Metadata(name="gpus", annotations=ALICE if fields else {}, managed_fields=fields)
    return Rollout(metadata=metadata, spec=RolloutSpec(brake=brake), status=status)


def node(
    name: str,
    state: str,
    *,
    owner: LeaseOwner | None = None,
    cordoned_by: str = "",
    who: str = "",
    cause: str = "",
    target: str = "old",
    skip: bool = False,
    was_cordoned: bool = False,
) -> CheckedNode:
    uid = f"uid-{name}"
    record = NodeRecord(
        node_uid=uid, epoch=1, token=1, pool="gpus", state=state, cause=cause, target=target
    )
    lease = owner and NodeLease(
        node_uid=uid, owner=owner, token=1, since=NOW, who=who, reason="a riser"
    )
    annotations = written(record, lease)
    if was_cordoned:
        annotations[INITIALLY_CORDONED_ANNOTATION] = "true"
    fields = owned(cordoned_by, {"f:unschedulable": {}}, ago=180)
    return CheckedNode(
        metadata=Metadata(
            name=name,
            uid=uid,
            labels={STATE_LABEL: state, **({SKIP_LABEL: "true"} if skip else {})},
            annotations=annotations,
            managed_fields=(fields,) if cordoned_by else (),
        ),
        spec=NodeSpec(unschedulable=bool(cordoned_by)),
    )


def in_flight(name: str) -> CheckedNode:
    return node(
        name, "pod-restart-required", owner=LeaseOwner.UPGRADE, cordoned_by="sluice-scheduler"
    )


def checks(*nodes: CheckedNode, of: Rollout | None = None) -> list[Check]:
    rollouts = [rollout() if of is None else of]
    return pool_checks(rollouts, nodes, now=NOW, troubles={}, skipping=())


def flying(*names: str) -> RolloutStatus:
    entries = {n: InFlight(node=n, token=1, target="new", since=NOW) for n in names}
    return replace(GOING, in_flight=entries)


def test_a_pool_that_goes_on_is_ok() -> None:
    (found,) = checks(in_flight("node-1"), of=rollout(status=flying("node-1")))
    assert (found.verdict, found.about) == (Verdict.OK, "pool gpus")
    assert found.found == "Proven, 1/3 nodes are done, 1 in flight"


def test_a_driver_that_does_not_start_is_a_warning_before_its_node_fails() -> None:
    trouble = {"node-1": "driver exited with code 1, 2 times"}
    going = rollout(status=flying("node-1"))
    _, found = pool_checks([going], [in_flight("node-1")], now=NOW, troubles=trouble, skipping=())
    assert (found.verdict, found.about, found.found, found.remedy) == (
        Verdict.WARNING,
        "node-1",
        "the driver exited with code 1, 2 times",
        "`sluice why node-1`",
    )


def test_a_frozen_pool_names_who_since_when_why_and_the_nodes_that_stay_out_of_service() -> None:
    frozen = rollout(Brake.FREEZE, flying("node-1", "node-2"))
    (found,) = checks(in_flight("node-2"), in_flight("node-1"), of=frozen)
    assert found.verdict is Verdict.WARNING
    assert found.found == (
        'frozen by alice for 12 min ("the storage is down"); node-1, node-2 stay cordoned, in the'
        " middle of an operation"
    )
    assert found.remedy == "`sluice upgrade resume gpus`"


def test_a_paused_pool_names_the_nodes_that_still_finish() -> None:
    (found,) = checks(in_flight("node-1"), of=rollout(Brake.PAUSE, flying("node-1")))
    assert found.found.endswith("; node-1 still finishes, and no other node starts")
    (found,) = checks(of=rollout(Brake.PAUSE))
    assert found.found.endswith("; no node starts, 1/3 are done")
    idle = rollout(Brake.PAUSE, replace(GOING, phase=RolloutPhase.COMPLETE))
    (found,) = checks(of=idle)
    assert (found.verdict, found.found.partition("; ")[2]) == (
        Verdict.WARNING,
        "nothing is to be done now, and no later upgrade starts",
    )


def test_a_pool_in_which_nothing_starts_for_another_reason_says_which() -> None:
    off = rollout(status=replace(GOING, because="autoUpgrade is off in the policy"))
    (found,) = checks(node("node-2", "upgrade-required"), of=off)
    assert (found.verdict, found.found, found.remedy) == (
        Verdict.WARNING,
        "no node starts: autoUpgrade is off in the policy",
        "`sluice why node-2` says who can end it",
    )
    complete = replace(GOING, phase=RolloutPhase.COMPLETE, because="left out: 1 skipped")
    (found,) = checks(of=rollout(status=complete))
    assert found.verdict is Verdict.OK


def test_a_halt_is_a_fault_with_the_failed_nodes_and_the_command_that_ends_it() -> None:
    halted = replace(GOING, phase=RolloutPhase.HALTED, targets={"new": FAILED})
    broken = node("node-2", "upgrade-failed", cause="driver-start: it exited")
    (found,) = checks(broken, of=rollout(status=halted))
    assert (found.verdict, found.found) == (
        Verdict.FAULT,
        (
            "halted: 1 of 3 nodes failed on 580.95.05, and no other starts on it: node-2"
            " (driver-start: it exited)"
        ),
    )
    assert found.remedy == (
        "`sluice why node-2`, then `sluice upgrade release 580.95.05 gpus --failures 1`, or"
        " set another version"
    )
    (found,) = checks(broken, of=rollout(status=replace(halted, version="")))
    assert found.remedy == "`sluice why node-2`, then set another version"
    (found,) = checks(broken)
    assert (found.verdict, found.found, found.remedy) == (
        Verdict.FAULT,
        "1 node failed: node-2 (driver-start: it exited)",
        "`sluice why node-2`",
    )
    both = checks(broken, of=rollout(Brake.PAUSE, halted))
    assert [each.verdict for each in both] == [Verdict.FAULT, Verdict.WARNING]


@pytest.mark.parametrize(("threshold", "is_told"), [(3, False), (4, True)])
def test_a_threshold_that_the_pool_cannot_reach_is_a_warning(threshold: int, is_told: bool) -> None:
    counts = replace(GOING.counts, total=5, skipped=1, excluded=1)
    record = TargetRecord(threshold=threshold)
    (found,) = checks(of=rollout(status=replace(GOING, counts=counts, targets={"new": record})))
    assert ("failureThreshold is 4, and 3 nodes can take part" in found.found) == is_told
    assert (found.verdict is Verdict.WARNING) == is_told


def test_a_lease_of_a_person_names_who_has_which_node_and_why() -> None:
    held = node("node-3", "upgrade-done", owner=LeaseOwner.HUMAN, who="bob")
    _, found = checks(held)
    assert (found.verdict, found.about) == (Verdict.WARNING, "node-3")
    assert found.found == "bob took the node 0 s ago: a riser"
    assert found.remedy == "if nobody works on it any more: `sluice lease return node-3`"


def test_a_complete_pool_names_the_nodes_that_people_keep_from_its_driver() -> None:
    counts = Counts(total=4, done=1, skipped=3)
    status = replace(GOING, phase=RolloutPhase.COMPLETE, counts=counts, because="left out: 3")
    leased = node("node-9", "upgrade-done", owner=LeaseOwner.HUMAN, who="bob")
    (found,) = checks(
        node("node-7", "upgrade-done", target="new"),
        node("node-8", "upgrade-required", skip=True),
        leased,
        of=rollout(status=status),
    )
    assert (found.verdict, found.about) == (Verdict.WARNING, "pool gpus")
    assert found.found == (
        "complete on 580.95.05, 1/3 nodes are done, but for node-8 (skip label), node-9 (bob"
        " took the node 0 s ago: a riser) and 1 more"
    )
    assert found.remedy == ("`sluice upgrade unskip node-8`; `sluice lease return node-9`")


def test_cordons_of_others_are_named_with_what_becomes_of_their_nodes() -> None:
    nodes = (
        node("node-1", "upgrade-required", cordoned_by="kubectl-cordon"),
        node("node-2", "upgrade-failed", cordoned_by="kubectl-cordon"),
        node("node-3", "upgrade-done", cordoned_by="sluice-scheduler"),
        in_flight("node-4"),
    )
    *_, found = checks(*nodes)
    assert found.verdict is Verdict.WARNING
    cordon = "node-1 cordoned by somebody with kubectl for 3 min: it counts as unavailable,"
    assert found.found == f"{cordon} is upgraded all the same, and stays cordoned"
    assert found.remedy.endswith("`kubectl uncordon node-1`")
    *_, both = checks(*nodes, node("node-5", "upgrade-required", cordoned_by="kubectl-cordon"))
    assert both.found.endswith(
        ": they count as unavailable, are upgraded all the same, and stay cordoned"
    )


def test_a_cordon_is_named_too_where_its_node_has_nothing_to_be_upgraded_to() -> None:
    done = node("node-1", "upgrade-done", cordoned_by="kubectl-cordon", target="new")
    other = node("node-2", "upgrade-done", cordoned_by="kubectl-cordon", target="new")
    complete = rollout(status=replace(GOING, phase=RolloutPhase.COMPLETE))
    for of in (complete, rollout()):
        pool, found = checks(done, of=of)
        assert (pool.about, found.verdict, found.about) == ("pool gpus", Verdict.WARNING, "cordons")
        assert found.found == (
            "node-1 cordoned by somebody with kubectl for 3 min:"
            " it counts as unavailable, and no new pod gets its GPUs"
        )
        assert found.remedy == "if it may be used again: `kubectl uncordon node-1`"
    _, both = checks(done, other, of=complete)
    assert both.found.endswith(": they count as unavailable, and no new pod gets their GPUs")
    waiting = node("node-3", "upgrade-required", cordoned_by="kubectl-cordon")
    _, upgraded, at_rest = checks(done, waiting)
    assert upgraded.found.startswith("node-3 cordoned")
    assert at_rest.found.startswith("node-1 cordoned")


def test_skip_labels_are_named_on_one_line_with_the_command_that_ends_them() -> None:
    labelled = ManagedFields(
        manager="kubectl-label",
        time=format_time(NOW - 180),
        fields_v1=msgspec.Raw(
            msgspec.json.encode({"f:metadata": {"f:labels": {f"f:{SKIP_LABEL}": {}}}})
        ),
    )
    done = node("node-9", "upgrade-done", target="new", skip=True)
    done = replace(done, metadata=replace(done.metadata, managed_fields=(labelled,)))
    _, found = checks(done)
    assert (found.verdict, found.about, found.found, found.remedy) == (
        Verdict.WARNING,
        "skip labels",
        "node-9 skipped by somebody with kubectl for 3 min: no upgrade starts on it",
        "if upgrades may start again: `sluice upgrade unskip node-9`",
    )
    more = (node(f"node-{number}", "upgrade-required", skip=True) for number in range(10, 13))
    _, found = checks(done, *more)
    assert found.found.endswith(
        "node-10 skipped, node-11 skipped and 1 more: no upgrade starts on them"
    )
    assert found.remedy.endswith("`sluice upgrade unskip node-9 node-10 node-11`")


def test_nodes_that_a_complete_rollout_left_out_are_not_named_twice() -> None:
    counts = Counts(total=2, done=1, skipped=1)
    complete = rollout(status=replace(GOING, phase=RolloutPhase.COMPLETE, counts=counts))
    kept = node("node-8", "upgrade-required", skip=True, cordoned_by="kubectl-cordon")
    assert [each.about for each in checks(kept, of=complete)] == ["pool gpus"]


def test_whether_cordoned_nodes_are_upgraded_is_said_by_the_oldest_strategy_of_their_pool() -> None:
    first, later = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

    def strategy(pool: str, created: str, nodes: str) -> Strategy:
        metadata = Metadata(name=f"{pool}-{created}", creation_timestamp=created)
        return Strategy(metadata=metadata, spec=StrategySpec(pool=pool, cordoned_nodes=nodes))

    skipping = skipping_pools(
        [
            strategy("gpus", later, "Upgrade"),
            strategy("gpus", first, "Skip"),
            strategy("others", first, "Upgrade"),
        ]
    )
    assert skipping == {"gpus"}
    cordoned = node("node-1", "upgrade-required", cordoned_by="kubectl-cordon")

    def means(known: frozenset[str] | None) -> str:
        *_, found = pool_checks([rollout()], [cordoned], now=NOW, troubles={}, skipping=known)
        return found.found.partition("unavailable, ")[2]

    assert means(skipping) == "and is skipped, as the strategy of its pool says"
    assert means(None) == "or is skipped, as the policy says"


def test_a_cordon_of_a_person_is_named_while_the_node_is_in_flight() -> None:
    node_6 = node(
        "node-6",
        "drain-required",
        owner=LeaseOwner.UPGRADE,
        cordoned_by="kubectl-cordon",
        was_cordoned=True,
    )
    *_, found = checks(node_6, of=rollout(status=flying("node-6")))
    assert found.found.startswith(
        "node-6 cordoned before its upgrade by somebody with kubectl for 3 min: "
    )
