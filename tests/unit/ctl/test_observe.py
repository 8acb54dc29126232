"""The rules by which a GPU Operator's fleet is explained."""

from typing import Any

import msgspec
import pytest

from libs.contracts.node import UpgradeState as State
from libs.ctl.observe.answers import status_of
from libs.ctl.observe.budget import blocked_because, budget_of
from libs.ctl.observe.checks import operator_checks
from libs.ctl.observe.courses import operator_course, sluice_course
from libs.ctl.observe.driver_pods import DriverPod
from libs.ctl.observe.explain import NEXT_PASS, explain
from libs.ctl.observe.fleet import Limits, Operator, OperatorFleet, OperatorNode, OperatorPool
from libs.ctl.observe.objects import Pod, PodDeletion
from libs.ctl.observe.placement import Host, hosts_of, without_place
from libs.ctl.observe.plan import StateEvent, plan_of, with_limits, with_policy
from libs.ctl.observe.pods import evicted_pods
from libs.ctl.observe.traps import traps_of
from libs.kube import views
from libs.policy.kinds.upgrade_policy import Drain, UpgradePolicy, WaitForCompletion
from libs.policy.kinds.upgrade_policy import PodDeletion as WantedDeletion
from tests.builders import objects
from tests.builders.objects import Manifest, seen

NOW = 1_800_000_000.0
RUNNING = {"phase": "Running"}
LIMITS = Limits(
    auto_upgrade=True,
    max_parallel=1,
    max_unavailable="25%",
    eviction=PodDeletion(),
    drains=False,
    job_selector="",
    job_timeout=0,
)
NEW_POD = DriverPod(
    name="gpu-operator/driver",
    synced=True,
    orphan=False,
    same_install=True,
    ready=True,
    restarts=0,
    reason="",
)
OLD_POD = msgspec.structs.replace(NEW_POD, synced=False, same_install=False)


def node(name: str = "node-1", state: str = State.UPGRADE_DONE, **changes: Any) -> OperatorNode:
    pod = OLD_POD if state == State.UPGRADE_REQUIRED else NEW_POD
    base = OperatorNode(
        name=name, state=state, pool="pool", driver="1", cordoned=False, ready=True, pod=pod
    )
    return msgspec.structs.replace(base, **changes)


def pool(*nodes: OperatorNode, **limits: Any) -> OperatorPool:
    changed = msgspec.structs.replace(LIMITS, **limits)
    return OperatorPool(name="pool", version="1", limits=changed, nodes=nodes)


def nodes(count: int, state: State = State.UPGRADE_REQUIRED, **changes: Any) -> list[OperatorNode]:
    return [node(f"{state}-{number}", state, **changes) for number in range(count)]


_CASES = [
    (nodes(10), 1, "25%", (10, 0, 0, 3, 1)),
    (nodes(10), 0, "25%", (10, 0, 0, 3, 3)),
    (nodes(10), 5, "25%", (10, 0, 0, 3, 3)),
    (nodes(1), 1, "25%", (1, 0, 0, 1, 1)),
    (nodes(3), 0, "1%", (3, 0, 0, 1, 1)),
    (nodes(4), 0, 0, (4, 0, 0, 0, 0)),
    (
        [*nodes(6, State.UPGRADE_DONE), *nodes(3, State.UNKNOWN, ready=False), *nodes(1)],
        1,
        "25%",
        (10, 0, 3, 3, 0),
    ),
    ([*nodes(8), *nodes(2, State.UPGRADE_FAILED, cordoned=True)], 2, "50%", (10, 2, 2, 5, 0)),
    ([*nodes(5), *nodes(3, State.UPGRADE_REQUIRED, cordoned=True)], 0, 8, (8, 0, 3, 8, 8)),
    (nodes(5), 0, 20, (5, 0, 0, 20, 5)),
]


@pytest.mark.parametrize(("members", "parallel", "unavailable", "expected"), _CASES)
def test_the_budget_is_the_operators(
    members: list[OperatorNode], parallel: int, unavailable: int | str, expected: tuple[int, ...]
) -> None:
    budget = budget_of(pool(*members, max_parallel=parallel, max_unavailable=unavailable))
    assert msgspec.structs.astuple(budget) == expected


def test_a_limit_that_is_no_number_is_the_reason() -> None:
    found = pool(*nodes(2), max_unavailable="5")
    assert "'5' is neither a number nor a percentage" in blocked_because(found, budget_of(found))


def trap_names(*members: OperatorNode, **limits: Any) -> set[str]:
    fleet = OperatorFleet(operator=Operator(), pools=(pool(*members, **limits),))
    return {trap.name for trap in traps_of(fleet)}


@pytest.mark.parametrize(
    ("name", "member", "limits"),
    [
        ("failed-nodes-hold-places", node(state=State.UPGRADE_FAILED, pod=OLD_POD), {}),
        ("failed-becomes-done", node(state=State.UPGRADE_FAILED), {"max_parallel": 5}),
        ("no-validator", node(state=State.VALIDATION_REQUIRED), {}),
        (
            "cordoned-nodes-start-at-once",
            node(state=State.UPGRADE_REQUIRED, cordoned=True, initially_cordoned=True),
            {},
        ),
        ("cordon-is-lost", node(state=State.UPGRADE_REQUIRED, cordoned=True), {}),
        ("cordon-is-left", node(cordoned=True, initially_cordoned=True), {"auto_upgrade": False}),
        (
            "failure-is-noticed-late",
            node(
                state=State.POD_RESTART_REQUIRED,
                pod=msgspec.structs.replace(NEW_POD, ready=False, restarts=4),
            ),
            {},
        ),
        ("unknown-state", node(state="wrong"), {}),
        ("operands-left-paused", node(paused=("device-plugin",)), {}),
        ("no-parallel-limit", node(), {"max_parallel": 0}),
        ("no-section-podDeletion", node(), {"eviction": None}),
    ],
)
def test_each_trap_is_named_where_it_holds(
    name: str, member: OperatorNode, limits: dict[str, Any]
) -> None:
    assert name in trap_names(member, **limits)
    assert name not in trap_names(node())


def test_a_trap_of_several_pools_is_told_once_and_names_them() -> None:
    unlimited = pool(*nodes(4), node(state="wrong"), max_parallel=0, max_unavailable=1)
    pools = [msgspec.structs.replace(unlimited, name=name) for name in ("a", "b")]
    found = traps_of(OperatorFleet(operator=Operator(), pools=tuple(pools)))
    told = {trap.name: trap.found for trap in found}
    assert len(told) == len(found)
    assert told["no-parallel-limit"].endswith("the upgrade, of a to 1 node, of b to 1 node at once")


@pytest.mark.parametrize(
    ("renewed", "told"),
    [
        (None, "no operator holds its Lease: whether it runs is not known"),
        (NOW - 3600, "it is away: it last renewed its Lease 1 h ago"),
    ],
)
def test_an_operator_that_is_away_is_told_in_words(renewed: float | None, told: str) -> None:
    status = status_of(
        OperatorFleet(operator=Operator(renewed=renewed), pools=()), (), pool="", now=NOW
    )
    assert operator_checks(status, now=NOW)[0].found == told


def test_a_missing_driver_pod_stops_every_node() -> None:
    stopped = msgspec.structs.replace(pool(*nodes(2)), incomplete=("drivers has 1 pods of 2",))
    assert "drivers has 1 pods of 2" in blocked_because(stopped, budget_of(stopped))
    fleet = OperatorFleet(operator=Operator(), pools=(stopped,))
    assert "one-missing-pod-stops-all" in {trap.name for trap in traps_of(fleet)}


def reason(member: OperatorNode, **limits: Any) -> tuple[str, str, str]:
    found = pool(member, **limits)
    why = explain(member, found, budget_of(found), now=NOW)
    return why.because, why.until, why.who


def test_a_validation_has_ten_minutes_and_without_a_pod_no_end() -> None:
    validating = node(
        state=State.VALIDATION_REQUIRED, validators=(False,), validating_since=NOW - 60
    )
    assert reason(validating)[1] == "for another 9 min, then upgrade-failed"
    assert reason(node(state=State.VALIDATION_REQUIRED))[1] == "without a limit"


def test_a_failed_node_whose_driver_is_ready_is_about_to_be_forgiven() -> None:
    because, _, who = reason(node(state=State.UPGRADE_FAILED))
    assert "uncordons it without a validation" in because
    assert who == NEXT_PASS


def test_each_state_has_a_reason_and_all_but_those_at_rest_somebody() -> None:
    for state in State:
        because, _, who = reason(node(state=state))
        assert because
        assert bool(who) == (state not in (State.UNKNOWN, State.UPGRADE_DONE)), state


def gpu_pod(*owners: Manifest) -> Pod:
    container = objects.container(resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}})
    meta = {"namespace": "a", "ownerReferences": owners}
    return seen(Pod, objects.pod("train", meta=meta, status=RUNNING, containers=[container]))


def test_a_pod_that_nothing_would_make_again_is_an_obstacle_unless_force_is_on() -> None:
    (found,) = evicted_pods([gpu_pod()], LIMITS, ())
    assert "podDeletion.force is off" in found.obstacle
    forced = msgspec.structs.replace(LIMITS, eviction=PodDeletion(force=True))
    (found,) = evicted_pods([gpu_pod()], forced, ())
    assert found.obstacle == ""
    (found,) = evicted_pods([gpu_pod(objects.owner("DaemonSet"))], forced, ())
    assert "DaemonSet" in found.obstacle


def test_rounds_follow_the_limits_of_each() -> None:
    found = pool(*nodes(10), max_parallel=0, max_unavailable=3)
    operator = operator_course(found, found.nodes, 60.0)
    assert (operator.at_once, operator.seconds) == (3, 4 * 60.0)
    sluice = sluice_course(found, found.nodes, 60.0)
    assert (sluice.at_once, sluice.first, sluice.seconds) == (3, 1, 4 * 60.0)


def test_a_failed_node_stops_the_operator_and_is_first_in_sluice() -> None:
    failed = node("failed", State.UPGRADE_FAILED, cordoned=True, pod=OLD_POD)
    found = pool(*nodes(3), failed)
    assert "failed failed" in operator_course(found, found.nodes, 60.0).because
    assert sluice_course(found, found.nodes, 60.0).seconds == 4 * 60.0


def test_persons_cordons_stay_and_can_use_up_the_limit() -> None:
    found = pool(*nodes(3), node("mine", State.UPGRADE_DONE, cordoned=True))
    course = sluice_course(found, found.nodes, 60.0)
    assert (course.seconds, course.because) == (None, "maxUnavailable allows 1; unavailable: 1")


def test_durations_are_those_of_upgrades_that_ended_well() -> None:
    def event(name: str, state: State, at: float) -> StateEvent:
        message = f"Successfully updated node state label to {state}"
        return StateEvent(node=name, message=message, at=at)

    events = [
        event("a", State.CORDON_REQUIRED, 0.0),
        event("a", State.POD_RESTART_REQUIRED, 50.0),
        event("a", State.UPGRADE_DONE, 300.0),
        event("b", State.CORDON_REQUIRED, 0.0),
        event("b", State.UPGRADE_FAILED, 10.0),
        event("b", State.UPGRADE_DONE, 20.0),
    ]
    plan = plan_of(pool(*nodes(2)), {}, events, version="")
    assert (plan.node_seconds, plan.measured_nodes) == (300.0, 1)


def test_a_plan_has_the_nodes_that_need_it_or_all_for_another_version() -> None:
    found = pool(node("done"), *nodes(1), node("skipped", State.UPGRADE_REQUIRED, skipped=True))
    assert [each.name for each in plan_of(found, {}, (), version="").nodes] == [
        "upgrade-required-0"
    ]
    another = plan_of(found, {}, (), version="2")
    assert [each.name for each in another.nodes] == ["done", "upgrade-required-0"]
    assert another.left_out == ("skipped: the skip label keeps it out",)
    assert plan_of(found, {}, (), version="", changed=True).nodes == another.nodes


def test_other_limits_replace_those_of_the_policy() -> None:
    changed = with_limits(pool(), max_unavailable="20%", max_parallel=4)
    assert (changed.limits.max_unavailable, changed.limits.max_parallel) == ("20%", 4)
    assert with_limits(pool(), max_unavailable="3").limits.max_unavailable == 3


def host(name: str, free: int, *taints: views.Taint, **labels: str) -> Host:
    return Host(name=name, labels=labels, taints=taints, free={"nvidia.com/gpu": free})


def wanting(name: str, gpus: int, **spec: Any) -> Pod:
    made = objects.pod(
        name, node="node-1", gpus=gpus, status=RUNNING, meta={"namespace": "a"}, **spec
    )
    return seen(Pod, made)


def test_pods_take_the_place_that_others_leave() -> None:
    hosts = [host("node-1", 8), host("node-2", 2), host("node-3", 1)]
    assert without_place("node-1", [wanting("a", 1), wanting("b", 2)], hosts) == ()
    assert without_place("node-1", [wanting("a", 2), wanting("b", 2)], hosts) == ("a/b",)
    assert without_place("node-1", [wanting("a", 4)], hosts) == ("a/a",)


def test_selectors_and_taints_keep_pods_away() -> None:
    taint = views.Taint(key="team", effect="NoSchedule", value="b")
    hosts = [host("node-2", 8, taint), host("node-3", 8, zone="x")]
    assert without_place("node-1", [wanting("a", 1, nodeSelector={"zone": "y"})], hosts) == ("a/a",)
    tolerant = wanting("a", 8, tolerations=[{"key": "team", "operator": "Exists"}])
    other = wanting("b", 8, tolerations=[{"key": "team", "value": "c"}])
    assert without_place("node-1", [tolerant, other], hosts) == ()
    assert without_place("node-1", [other, wanting("c", 8)], hosts) == ("a/c",)


def test_hosts_are_free_by_what_their_pods_ask_for() -> None:
    status = views.NodeStatus(allocatable={"nvidia.com/gpu": "8", "cpu": "4"})
    nodes = [
        views.Node(metadata=views.Metadata(name="node-1"), status=status),
        views.Node(
            metadata=views.Metadata(name="node-2"),
            spec=views.NodeSpec(unschedulable=True),
            status=status,
        ),
    ]
    (found,) = hosts_of(nodes, [wanting("a", 3)])
    assert (found.name, found.free) == ("node-1", {"nvidia.com/gpu": 5})


def test_a_policy_that_is_not_applied_yet_brings_its_limits() -> None:
    wanted = UpgradePolicy(
        auto_upgrade=True,
        max_parallel_upgrades=3,
        max_unavailable=2,
        pod_deletion=WantedDeletion(force=True, timeout_seconds=9, delete_empty_dir=True),
        drain=Drain(enable=True),
        wait_for_completion=WaitForCompletion(pod_selector="a=b", timeout_seconds=5),
    )
    limits = with_policy(pool(), wanted, has_pod_deletion=True).limits
    assert limits == Limits(
        auto_upgrade=True,
        max_parallel=3,
        max_unavailable=2,
        eviction=PodDeletion(force=True, timeout_seconds=9, delete_empty_dir=True),
        drains=True,
        job_selector="a=b",
        job_timeout=5,
    )
    assert with_policy(pool(), wanted, has_pod_deletion=False).limits.eviction is None
