"""Preflight queries before a start, and what their answers hold up (docs/states.md#d-9)."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.reports import Finding, Preflight
from libs.contracts.waits import ITSELF, RESOLVED_BY, WaitCode
from libs.rollout.decision import AskPreflight, Decision, Wait
from libs.rollout.pool.allocation import PREFLIGHTS_AHEAD, RECHECKS_AT_ONCE
from libs.rollout.preflight import PODS_UNLISTED, open_query
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    FINDING,
    asked_of,
    asks_of,
    candidate,
    candidates,
    checked,
    code_of,
    decided,
    granted_to,
    instant,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import NEW, NOW, OLD, label_of, on_host, required

TWO = open_pool(upgrade={"max_parallel_upgrades": 0, "max_unavailable": 2}, record=of_target())
BY_REMEDY, OR_WITHOUT = "an administrator, by the remedy", "or by the request without-preflight"
SILENT = Wait(code=WaitCode.AGENT_SILENT, detail="", since=NOW - 60)


def never_queried(count: int) -> list[NodeView]:
    return [required(f"node-{n:02}") for n in range(count)]


def queried(name: str, seconds: float) -> NodeView:
    return checked(required(name), asked=NOW - seconds, answered=None)


def test_a_few_more_nodes_are_queried_than_have_slots() -> None:
    decision = decided(TWO, *never_queried(20))
    assert sorted(asked_of(decision)) == [f"node-{n:02}" for n in range(2 + PREFLIGHTS_AHEAD)]
    assert not any(write.granted for write in decision.rollouts)
    waits = {name: step.wait for name, step in decision.steps.items()}
    codes = [wait.code for wait in waits.values() if wait is not None]
    assert codes == [WaitCode.PREFLIGHT] * 2 + [WaitCode.BUDGET] * PREFLIGHTS_AHEAD
    assert code_of(decision, "node-19") is WaitCode.BUDGET


def test_a_preflight_queries_the_wanted_driver() -> None:
    assert asked_of(decided(TWO, required("node-1")))["node-1"].label == label_of("target-new")


def test_no_preflight_without_a_free_slot() -> None:
    closed_pool = replace(TWO, upgrade=replace(TWO.upgrade, max_unavailable=0))
    assert asked_of(decided(closed_pool, *never_queried(3))) == {}


def test_a_pending_preflight_keeps_its_slot() -> None:
    nodes = [queried("node-00", 9.9), queried("node-01", 9.9), candidate("node-02")]
    assert granted_to(TWO, *nodes) == []
    assert granted_to(TWO, *nodes[1:]) == ["node-02"]
    wait = decided(TWO, *nodes).waits["node-00"]
    assert (wait.code, wait.until) == (WaitCode.PREFLIGHT, NOW - 9.9 + 10)


def test_an_unanswered_preflight_makes_a_node_silent() -> None:
    nodes = [queried("node-00", 10.0), queried("node-01", 59.0), *candidates(4)[2:]]
    decision = decided(TWO, *nodes)
    assert decision.rollouts[0].granted == ("node-02", "node-03")
    assert code_of(decision, "node-00") is WaitCode.AGENT_SILENT
    assert asked_of(decision) == {}


def test_a_silent_node_is_queried_again_without_keeping_a_slot() -> None:
    silent_node = replace(queried("node-00", 60.0), last_wait=SILENT)
    decision = decided(TWO, silent_node, *candidates(3)[1:])
    assert sorted(asked_of(decision)) == ["node-00"]
    assert decision.rollouts[0].granted == ("node-01", "node-02")
    asked = replace(queried("node-00", 1.0), last_wait=SILENT)
    assert granted_to(TWO, asked, *candidates(3)[1:]) == ["node-01", "node-02"]
    assert code_of(decided(TWO, asked), "node-00") is WaitCode.AGENT_SILENT


def test_an_answer_is_valid_for_a_minute_and_its_label() -> None:
    fresh = checked(required("node-1"), asked=NOW - 61, answered=NOW - 59.9)
    assert granted_to(TWO, fresh) == ["node-1"]
    old = checked(required("node-1"), asked=NOW - 61, answered=NOW - 60)
    assert asked_of(decided(TWO, old)).keys() == {"node-1"}
    other = checked(required("node-1"), target=OLD)
    assert asked_of(decided(TWO, other)).keys() == {"node-1"}


def test_an_answer_is_about_one_artefact() -> None:
    """The ConfigMap may name another file for the same version while the answer is valid."""
    on_hosts = on_host(TWO)
    (artefact,) = {build.artefact for build in on_hosts.builds[NEW].values()}
    node = candidate("node-1")
    assert node.preflight is not None
    same = replace(node, preflight=replace(node.preflight, artefact=artefact))
    assert granted_to(on_hosts, same) == ["node-1"]
    other = replace(node, preflight=replace(node.preflight, artefact="sha256:other"))
    assert granted_to(on_hosts, other) == []
    assert asked_of(decided(on_hosts, other))["node-1"].artefact_digest == artefact


def test_nothing_is_asked_before_the_pods_of_the_node_are_listed() -> None:
    decision = decided(TWO, *(required(f"node-{n:02}", pods=None) for n in range(3)))
    assert asked_of(decision) == {}
    assert [ask.awaits_pods for ask in asks_of(decision).values()] == [True] * 3
    first, _, third = (decision.steps[f"node-{n:02}"].wait for n in range(3))
    assert first is not None
    assert (first.code, first.detail, first.who) == (
        WaitCode.PREFLIGHT,
        PODS_UNLISTED,
        ITSELF,
    )
    assert third is not None
    assert third.code is WaitCode.BUDGET


def unlisted(name: str, seconds: float) -> NodeView:
    """Return a node whose check has waited for its pods for these seconds."""
    node = queried(name, seconds)
    assert node.preflight is not None
    return replace(node, pods=None, preflight=replace(node.preflight, awaits_pods=True))


def test_a_node_keeps_its_turn_until_its_pods_are_listed_and_is_asked_then() -> None:
    waiting, others = unlisted("node-00", 9.9), candidates(3)[1:]
    decision = decided(TWO, waiting, *others)
    assert decision.rollouts[0].granted == ("node-01",)
    assert asks_of(decision) == {}
    wait = decision.waits["node-00"]
    assert (wait.detail, wait.until) == (PODS_UNLISTED, NOW - 9.9 + 10)
    listed = decided(TWO, replace(waiting, pods=()), *others)
    assert listed.rollouts[0].granted == ("node-01",)
    assert list(asked_of(listed)) == ["node-00"]


def test_a_node_whose_pods_cannot_be_listed_holds_up_only_itself() -> None:
    waiting, others = unlisted("node-00", 10.0), candidates(3)[1:]
    decision = decided(TWO, waiting, *others)
    assert decision.rollouts[0].granted == ("node-01", "node-02")
    assert asks_of(decision) == {}
    wait = decision.waits["node-00"]
    assert wait.code is WaitCode.PREFLIGHT
    assert wait.detail == f"{PODS_UNLISTED}, for more than 10 s"
    assert "the administrator of the API server" in wait.who
    assert list(asked_of(decided(TWO, replace(waiting, pods=())))) == ["node-00"]


class Node:
    """A node in a pool of three, on which another pod is created while each check is answered."""

    def __init__(self) -> None:
        self.view = required("node-00")
        self.at = NOW

    def decide(self) -> Decision:
        return decided(TWO, self.view, *candidates(3)[1:], now=instant(self.at))

    def ask(self) -> AskPreflight:
        ask = asks_of(self.decide())["node-00"]
        self.at += 1
        self.view = replace(self.view, preflight=open_query(ask, self.view.preflight, self.at))
        return ask

    def answer(self, *findings: Finding) -> None:
        query = self.view.preflight
        assert query is not None
        answer = Preflight(check="c", label=query.label, findings=findings)
        self.at += 1
        query = replace(query, answered_at=self.at, answer=answer)
        pods = self.view.pods or ()
        uid = f"pod-agent-{len(pods)}"
        agent = WorkloadPod(
            namespace="sluice", name="agent", uid=uid, exemption=EvictionExemption.SLUICE
        )
        self.view = replace(self.view, preflight=query, pods=(*pods, agent))

    @property
    def pods(self) -> tuple[str, ...]:
        """The pods that the check would name now."""
        return tuple(pod.uid for pod in (*self.view.driver_pods, *(self.view.pods or ())))


def test_what_may_be_a_pod_that_leaves_is_asked_again_and_the_node_keeps_its_turn() -> None:
    """A pod that was created since holds the devices open too."""
    node = Node()
    assert node.ask().check.removes_pods == node.pods
    node.answer(FINDING)
    decision = node.decide()
    assert decision.rollouts[0].granted == ("node-01",)
    wait = decision.steps["node-00"].wait
    assert wait is not None
    assert "full" not in wait.detail
    assert set(node.ask().check.removes_pods) == set(node.pods)
    assert node.decide().waits["node-00"].detail == wait.detail
    node.answer()
    assert node.decide().rollouts[0].granted == ("node-00", "node-01")


def test_what_the_second_check_finds_counts_whatever_pods_are_created() -> None:
    node = Node()
    for _ in range(2):
        node.ask()
        node.answer(FINDING)
    for _ in range(3):
        decision = node.decide()
        assert decision.rollouts[0].granted == ("node-01", "node-02")
        wait = decision.steps["node-00"].wait
        assert wait is not None
        assert "the disk is full" in wait.detail
        assert node.ask().keeps_findings
        assert "the disk is full" in node.decide().waits["node-00"].detail
        node.answer(FINDING)


def test_what_a_check_finds_counts_at_once_if_no_more_pods_leave() -> None:
    node = Node()
    node.ask()
    asked = node.view
    node.answer(FINDING)
    node.view = replace(node.view, pods=asked.pods)
    decision = node.decide()
    assert decision.rollouts[0].granted == ("node-01", "node-02")
    assert asks_of(decision) == {}
    assert "the disk is full" in decision.waits["node-00"].detail


@pytest.mark.parametrize(
    ("remedies", "who"),
    [
        (("",), RESOLVED_BY[WaitCode.PREFLIGHT]),
        (("make room", "make room", ""), f"{BY_REMEDY} (disk: make room) {OR_WITHOUT}"),
        (("no action needed: the check is repeated",), ITSELF),
        (
            ("no action needed: the check is repeated", "make room"),
            f"{BY_REMEDY} (disk: make room) {OR_WITHOUT}",
        ),
    ],
)
def test_who_can_end_the_wait_for_findings(remedies: tuple[str, ...], who: str) -> None:
    findings = [replace(FINDING, remedy=remedy) for remedy in remedies]
    assert decided(TWO, checked(required("node-00"), *findings)).waits["node-00"].who == who


def test_a_finding_holds_up_only_its_own_node() -> None:
    found = checked(required("node-00"), FINDING)
    decision = decided(TWO, found, *candidates(3)[1:])
    assert decision.rollouts[0].granted == ("node-01", "node-02")
    wait = decision.waits["node-00"]
    assert wait.code is WaitCode.PREFLIGHT
    assert "the disk is full" in wait.detail


def test_old_findings_are_rechecked_a_few_at_a_time() -> None:
    nodes = [
        checked(required(f"node-{n:02}"), FINDING, asked=NOW - 70, answered=NOW - 69 + n / 9)
        for n in range(20)
    ]
    decision = decided(TWO, *nodes)
    assert sorted(asked_of(decision)) == [f"node-{n:02}" for n in range(RECHECKS_AT_ONCE)]
    assert all(
        step.wait and step.wait.code is WaitCode.PREFLIGHT for step in decision.steps.values()
    )
    wait = decision.waits["node-19"]
    assert wait.code is WaitCode.PREFLIGHT
    assert "the disk is full" in wait.detail
    assert wait.who == (
        "an administrator, by the remedy (disk: make room) or by the request without-preflight"
    )
    out = [
        replace(view, preflight=replace(view.preflight, asked_at=NOW - 1))  # type: ignore[type-var]
        for view in nodes[:RECHECKS_AT_ONCE]
    ]
    assert asked_of(decided(TWO, *out, *nodes[RECHECKS_AT_ONCE:])) == {}


def test_an_old_finding_is_not_the_reason_in_a_pause() -> None:
    found = checked(required("node-1"), FINDING)
    assert code_of(decided(TWO, found), "node-1") is WaitCode.PREFLIGHT
    paused = replace(TWO, upgrade=replace(TWO.upgrade, auto_upgrade=False))
    assert code_of(decided(paused, found), "node-1") is WaitCode.PAUSED


def test_no_preflight_in_a_pause() -> None:
    nodes = [
        *never_queried(2),
        checked(required("node-9"), FINDING, asked=NOW - 70, answered=NOW - 69),
    ]
    paused = replace(TWO, upgrade=replace(TWO.upgrade, auto_upgrade=False))
    assert asked_of(decided(paused, *nodes)) == {}


def test_a_query_being_written_keeps_its_slot() -> None:
    nodes = never_queried(9)
    pending = [replace(view, write_pending=True) for view in nodes[: 2 + PREFLIGHTS_AHEAD]]
    decision = decided(TWO, *pending, *nodes[2 + PREFLIGHTS_AHEAD :])
    assert asked_of(decision) == {}
    assert sorted(decision.waits) == [view.name for view in nodes[2 + PREFLIGHTS_AHEAD :]]


def test_an_answer_at_the_moment_of_the_question_counts() -> None:
    asked = checked(required("n0"), asked=NOW - 2, answered=NOW - 2)
    assert granted_to(open_pool(record=of_target()), asked) == ["n0"]


def test_no_preflight_query_while_a_write_is_pending() -> None:
    pool_view = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    asleep = replace(required("n1"), write_pending=True)
    decision = decided(pool_view, candidate("n0"), asleep, required("n2"))
    assert list(asked_of(decision)) == ["n2"]


def first(node: NodeView) -> NodeView:
    """Rank the node first: its driver is older than all others."""
    return replace(node, loaded=LoadedDriver(version="1"))


def test_a_pending_recheck_counts_against_the_recheck_limit() -> None:
    blocked = [
        checked(required(f"n{n:02}"), FINDING, asked=NOW - 70 - 20 + n, answered=NOW - 70 - 20 + n)
        for n in range(RECHECKS_AT_ONCE + 4)
    ]
    pool = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    first = [view.name for view in blocked[:RECHECKS_AT_ONCE]]
    assert list(asked_of(decided(pool, *blocked))) == first
    *others, last = blocked
    decision = decided(pool, *others, replace(last, write_pending=True))
    assert list(asked_of(decision)) == first[:-1]
