"""Incremental decisions equal decisions made from scratch, whatever changes."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeLease, UpgradeState
from libs.contracts.rollout import InFlight
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout.decide import Decider, DecisionDelta, decide
from libs.rollout.decision import Wait
from libs.rollout.outcomes import WakeQueue
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import PodEviction, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.allocate.builders import (
    FINDING,
    candidate,
    checked,
    entry,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    done,
    fleet,
    in_flight_node,
    instant,
    lease,
    node,
    pool,
    required,
    with_build,
    with_record,
    with_status,
)
from tests.unit.rollout.in_flight.step_runner import TOKEN as LEASE_TOKEN
from tests.unit.rollout.in_flight.step_runner import in_flight
from tests.unit.rollout.in_flight.test_validation import proven

OTHER = "other"
JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED
FIRST_POOL = open_pool(record=of_target(), base=2)
OTHER_POOL = replace(pool(), key=OTHER, uid="uid-of-other")
EVICTIONS = (PodEviction(uid="pod", since=NOW - 5),)
HUMAN_LEASE = lease(owner=LeaseOwner.HUMAN)


class IncrementalCheck:
    """Compares each incremental decision with one made from scratch."""

    def __init__(self, pools: PoolView | Sequence[PoolView], *nodes: NodeView) -> None:
        self.fleet = fleet(pools, *nodes)
        self.decider = Decider(self.fleet)
        self._waiting = dict[str, Wait | None]()
        """The wait that each node was last reported with."""

    def update(
        self, nodes: Iterable[NodeView] = (), pools: Iterable[PoolView] = (), *, gone: str = ""
    ) -> None:
        views = {**self.fleet.nodes, **{view.name: view for view in nodes}}
        pool_views = {**self.fleet.pools, **{view.key: view for view in pools}}
        pool_views.pop(gone, None)
        self.fleet = fleet(list(pool_views.values()), *views.values())
        self.decider.update(nodes, (), pools, [gone] if gone else ())

    def decide(self, now: Instant | None = None) -> DecisionDelta:
        """Decide both ways, compare, and return the delta."""
        time = now or instant()
        nodes = [
            replace(view, last_wait=self._waiting.get(name))
            for name, view in self.fleet.nodes.items()
        ]
        full = decide(fleet(list(self.fleet.pools.values()), *nodes), time)
        delta = self.decider.decide(time)
        assert (delta.steps, dict(self.decider.waits)) == (full.steps, full.waits)
        assert (delta.rollouts, delta.budgets) == (full.rollouts, full.budgets)
        assert (delta.probes, delta.cancelled) == (full.probes, full.cancelled)
        assert delta.wake_at == full.wake_at
        self._waiting |= dict(delta.waits)
        self._waiting |= {name: step.wait for name, step in delta.steps.items()}
        self._waiting |= dict.fromkeys(delta.no_longer_waiting)
        return delta

    def settle(self, now: Instant) -> None:
        """Apply all due Rollout writes."""
        for write in self.decide(now).rollouts:
            view = self.fleet.pools[write.pool]
            assert view.rollout is not None
            rollout = replace(view.rollout, status=write.status, has_finalizer=write.has_finalizer)
            self.update(pools=[replace(view, rollout=rollout)])
        assert self.decide(now).rollouts == ()


def with_entries(view: PoolView, **flights: InFlight) -> PoolView:
    return with_status(view, in_flight=flights)


def between_pools(given: NodeView, record: str, selected: str, **changes: Any) -> NodeView:
    return replace(with_record(given, pool=record), pool=selected, **changes)


# Time and sources.


def test_a_node_waiting_for_fresh_data_starts_when_it_arrives() -> None:
    check = IncrementalCheck(FIRST_POOL, candidate("n"))
    check.settle(instant(ages={"pods": 15.0}))
    check.decide(instant(ages={"pods": 15.0}))
    assert [wait.code for wait in check.decider.waits.values()] == [WaitCode.STALE]
    (write,) = check.decide().rollouts
    assert write.granted == ("n",)


def test_a_validated_node_is_released_when_fresh_data_arrives() -> None:
    view = proven()
    entries = {view.uid: entry(view, token=LEASE_TOKEN)}
    check = IncrementalCheck(with_entries(FIRST_POOL, **entries), view)
    old = check.decide(instant(ages={"pods": 15.0}))
    assert (old.steps, old.probes, old.wake_at) == ({}, ("pods",), NOW + 10.0)
    assert [wait.code for wait in check.decider.waits.values()] == [WaitCode.STALE]
    fresh = check.decide()
    assert (list(fresh.steps), fresh.probes) == ([view.name], ())


def test_no_probe_while_a_write_to_the_node_is_pending() -> None:
    view = replace(proven(), write_pending=True)
    entries = {view.uid: entry(view, token=LEASE_TOKEN)}
    check = IncrementalCheck(with_entries(FIRST_POOL, **entries), view)
    assert check.decide(instant(ages={"pods": 15.0})).probes == ()


def test_the_stale_source_is_reported_as_it_is_now() -> None:
    waits = candidate("n")
    check = IncrementalCheck(with_entries(FIRST_POOL, **{waits.uid: entry(waits)}), waits)
    for source in ("pods", "nodes", "policies"):
        check.decide(instant(ages={source: 95.0}))
        (wait,) = check.decider.waits.values()
        assert wait.code is WaitCode.STALE
        assert source in wait.detail


def test_limits_move_during_a_bus_outage() -> None:
    view = in_flight_node(RESTART, "n", record={"deadline": NOW + 600.0})
    check = IncrementalCheck(with_entries(FIRST_POOL, **{view.uid: entry(view, token=TOKEN)}), view)
    for later in (0.0, 30.0, 60.0):
        check.decide(instant(NOW + later, bus_down_since=NOW - 30))
        assert check.decider.waits["n"].until == NOW + 600.0 + 30.0 + later


def test_an_expiring_entry_of_another_pool_sets_the_wake_up() -> None:
    view = checked(node("n"), asked=NOW - 2, answered=None)
    for age, woken in ((58.0, NOW + 2), (5.0, NOW + 8)):
        flight = InFlight(node="n", token=1, target=NEW, since=NOW - age)
        check = IncrementalCheck([FIRST_POOL, with_entries(OTHER_POOL, **{view.uid: flight})], view)
        assert check.decide().wake_at == woken


def test_a_wait_changes_once_more_when_somebody_has_to_end_it() -> None:
    asked = checked(required("n"), asked=NOW - 2, answered=None)
    check = IncrementalCheck(FIRST_POOL, asked)
    assert check.decide().waits["n"].who == ITSELF
    found = checked(required("n"), FINDING)
    check.update([found])
    changed = check.decide(instant(NOW + 1)).waits["n"]
    assert (changed.code, changed.since) == (WaitCode.PREFLIGHT, NOW)
    assert changed.who.startswith("an administrator")
    for view in (asked, found):
        check.update([view])
        assert check.decide(instant(NOW + 1)).waits == {}


def test_no_end_is_known_while_a_node_in_flight_waits_for_somebody() -> None:
    job = WorkloadPod(namespace="ml", name="train", uid="u", gpu=True, job=True)
    view = in_flight(JOBS, pods=(job,))
    pool_view = with_entries(FIRST_POOL, **{view.uid: entry(view, token=TOKEN)})
    check = IncrementalCheck(pool_view, view)
    check.settle(instant())
    written = check.fleet.pools[POOL]
    assert check.decide().rollouts == ()
    check.update(pools=[with_status(written, eta="2026-11-01T11:50Z")])
    (write,) = check.decide().rollouts
    assert (write.has_known_end, write.because) == (False, "status of nodes updated")
    check.update([replace(view, pods=())])
    assert check.decide().rollouts == ()


# Changes of pools and nodes.


def test_changed_rules_are_applied_to_every_node_of_the_pool() -> None:
    check = IncrementalCheck([FIRST_POOL, OTHER_POOL], required("n"), done("m", pool=OTHER))
    check.settle(instant())
    changed = with_build(check.fleet.pools[POOL], readiness=Readiness.UNSETTLED)
    check.update(pools=[changed])
    check.decide()
    assert check.decider.waits["n"].code is WaitCode.TARGET_UNSETTLED


def test_a_policy_that_returns_has_its_nodes_again() -> None:
    between = between_pools(done("n"), POOL, OTHER)
    check = IncrementalCheck([FIRST_POOL, OTHER_POOL], between)
    check.decide()
    for gone in (True, False):
        check.update(pools=[replace(FIRST_POOL, gone=gone)])
        check.decide()


def test_a_node_counted_in_two_pools_follows_a_change_of_rules() -> None:
    between = between_pools(done("n", OLD), POOL, OTHER)
    pool_view = with_entries(FIRST_POOL, **{between.uid: entry(between, token=TOKEN)})
    check = IncrementalCheck([pool_view, OTHER_POOL], between)
    check.decide()
    for gone in (True, False):
        check.update(pools=[replace(pool_view, gone=gone)])
        check.decide()


def test_an_entry_in_another_pool_counts_there_while_it_exists() -> None:
    view = checked(node("n"))
    check = IncrementalCheck([FIRST_POOL, OTHER_POOL], view)
    check.settle(instant())
    flight = InFlight(node="n", token=1, target=NEW, since=NOW - 5)
    for flights in ({view.uid: flight}, {}, {view.uid: flight}):
        check.update(pools=[with_entries(OTHER_POOL, **flights)])
        check.decide()
        check.update([replace(view, revision="51")])
        check.decide()


def test_nodes_of_a_removed_pool_belong_to_the_others() -> None:
    between = between_pools(done("n"), POOL, OTHER)
    check = IncrementalCheck([FIRST_POOL, OTHER_POOL], between, node("m"))
    check.decide()
    check.update(gone=POOL)
    check.decide()
    check.update(pools=[FIRST_POOL])
    check.decide()


# Fields of a decision.


@pytest.mark.parametrize(
    ("given", "cancelled"),
    [
        (node("n", pool="", evictions=EVICTIONS), True),
        (node("n", pool=""), False),
        (done("n", evictions=EVICTIONS), True),
        (done("n", lease=replace(HUMAN_LEASE, node_uid="uid-n"), evictions=EVICTIONS), True),
        (in_flight_node(JOBS, "n", evictions=EVICTIONS), False),
        (in_flight_node(JOBS, "n"), False),
    ],
)
def test_evictions_are_cancelled_where_nothing_is_under_way(
    given: NodeView, *, cancelled: bool
) -> None:
    is_in_flight = given.state == JOBS
    flights = {given.uid: entry(given, token=TOKEN)} if is_in_flight else {}
    check = IncrementalCheck(with_entries(FIRST_POOL, **flights), given)
    assert check.decide().cancelled == (("n",) if cancelled else ())


def test_evictions_are_cancelled_by_a_freeze() -> None:
    view = in_flight_node(JOBS, "n", evictions=EVICTIONS)
    pool_view = with_entries(FIRST_POOL, **{view.uid: entry(view, token=TOKEN)})
    frozen = with_status(pool_view, frozen_since=NOW - 5)
    check = IncrementalCheck(frozen, view)
    assert check.decide().cancelled == ("n",)
    check.update(pools=[pool_view])
    assert check.decide().cancelled == ()


def test_a_step_without_actions_is_a_wait() -> None:
    view = in_flight_node(JOBS, "n", cordon_taint=False)
    assert isinstance(view.lease, NodeLease)
    fresh = replace(view, lease=replace(view.lease, since=NOW - 0.5))
    check = IncrementalCheck(
        with_entries(FIRST_POOL, **{view.uid: entry(view, token=TOKEN)}), fresh
    )
    delta = check.decide()
    assert (delta.steps, list(check.decider.waits)) == ({}, ["n"])


def test_a_node_is_counted_in_the_pool_that_selects_it() -> None:
    between = between_pools(done("n", OLD), POOL, OTHER)
    delta = IncrementalCheck([FIRST_POOL, OTHER_POOL], between, done("m")).decide()
    counts = {write.pool: write.status.counts for write in delta.rollouts}
    assert (counts[POOL].total, counts[POOL].done, counts[POOL].waiting) == (1, 1, 0)
    assert (counts[OTHER].total, counts[OTHER].waiting) == (1, 1)


def test_a_replaced_timer_is_skipped() -> None:
    wakes = WakeQueue()
    for at in (5.0, 9.0):
        wakes.put("n", at)
    assert (wakes.next_at(), wakes.pop_due(7.0), wakes.pop_due(9.0)) == (9.0, [], ["n"])
    assert wakes.next_at() is None
