"""A pool on which a driver never loads, reduced to grants and failures.

A granted node begins at once, and fails when the test calls `fail`.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.contracts.rollout import InFlight, Release, RolloutPhase, RolloutSpec, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.rollout.decide import Decider, DecisionDelta
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import candidate, checked
from tests.unit.rollout.builders import (
    NEW,
    done,
    failed,
    fleet,
    in_flight_node,
    instant,
    node,
    pool,
    without_driver,
)


class FailingPool:
    def __init__(self, count: int, **upgrade: Any) -> None:
        self.nodes = {f"n{n:04}": candidate(f"n{n:04}") for n in range(count)}
        result = pool(upgrade={"max_parallel_upgrades": 0, **upgrade}, status={"phase": "Complete"})
        self.pool = replace(result, strategy=replace(result.strategy, retries=0))
        self.decider = Decider(fleet(self.pool, *self.nodes.values()))
        self.started: list[str] = []
        """Uids of all nodes that began on the new target."""
        self.most = 0
        """Most nodes in flight or broken at a time."""

    @property
    def status(self) -> RolloutStatus:
        assert self.pool.rollout is not None
        return self.pool.rollout.status

    def decide(self) -> DecisionDelta:
        """Decide once; writes to the Rollout take effect at once."""
        delta = self.decider.decide(instant())
        for write in delta.rollouts:
            self._rollout(status=write.status)
            self._show(
                self._begun(write.status.in_flight[self.nodes[name].uid]) for name in write.granted
            )
        record = self.status.targets.get(NEW)
        broken = set(record.failed) if record is not None else set[str]()
        in_flight_uids = {
            uid for uid, flight in self.status.in_flight.items() if flight.target == NEW
        }
        self.most = max(self.most, len(broken | in_flight_uids))
        return delta

    def settle(self) -> None:
        """Decide until nothing is written."""
        while self.decide().rollouts:
            pass

    def _begun(self, flight: InFlight) -> NodeView:
        self.started.append(f"uid-{flight.node}")
        record = {"token": flight.token, "target": flight.target}
        view = in_flight_node("pod-restart-required", flight.node, record=record)
        assert view.lease is not None
        return replace(view, lease=replace(view.lease, token=flight.token))  # type: ignore[type-var]

    def fail(self, names: Iterable[str]) -> None:
        self._show([self._ended(name, failed(name)) for name in names])

    def prove(self, names: Iterable[str]) -> None:
        self._show([self._ended(name, done(name)) for name in names])

    def _ended(self, name: str, view: NodeView) -> NodeView:
        old_record = self.nodes[name].record
        assert isinstance(old_record, NodeRecord)
        assert isinstance(view.record, NodeRecord)
        proof = view.record.evidence
        if proof is not None:
            proof = replace(proof, token=old_record.token)
        record = replace(view.record, token=old_record.token, evidence=proof)
        return replace(view, record=record)

    def _show(self, views: Iterable[NodeView]) -> None:
        for view in views:
            self.nodes[view.name] = view
            self.decider.update([view])

    def join(self, *names: str) -> None:
        self._show(checked(node(name)) for name in names)

    def leave(self, *names: str) -> None:
        for name in names:
            del self.nodes[name]
        self.decider.update(nodes_gone=names)

    def lose_driver_pods(self, names: Iterable[str]) -> None:
        """Delete the driver pods: without GPUs in use a start would cost nothing."""
        self._show(without_driver(self.nodes[name]) for name in list(names))

    def release(self, failures: int) -> None:
        self._rollout(spec=RolloutSpec(release=Release(target=NEW, failures=failures)))

    def want(self, target: str) -> None:
        self._change(replace(self.pool, target=target))

    def _rollout(self, **changes: Any) -> None:
        assert self.pool.rollout is not None
        rollout = replace(self.pool.rollout, **changes)
        self._change(replace(self.pool, rollout=rollout))

    def _change(self, pool: PoolView) -> None:
        self.pool = pool
        self.decider.update(pools=[pool])

    def in_flight(self) -> list[str]:
        return sorted(flight.node for flight in self.status.in_flight.values())

    def codes(self) -> set[WaitCode]:
        return {wait.code for wait in self.decider.waits.values()}


def play_out(play: FailingPool, *, at_a_time: int) -> None:
    """Fail every node that starts, `at_a_time` nodes between two rounds."""
    play.settle()
    while in_flight := play.in_flight():
        play.fail(in_flight[:at_a_time])
        play.settle()


def count_starts(count: int, threshold: int, *, share: int) -> None:
    """Fail every node that starts; check that no more start than the threshold."""
    play = FailingPool(count, max_unavailable="25%")
    play_out(play, at_a_time=max(1, threshold // share))
    assert len(set(play.started)) == len(play.started) == threshold
    assert play.most == threshold
    assert play.status.phase is RolloutPhase.HALTED
    assert len(play.status.targets[NEW].failed) == threshold
    assert play.codes() == {WaitCode.HALTED, WaitCode.FAILED}


def count_newcomers(count: int, threshold: int) -> None:
    """Check that joining, leaving and driverless nodes do not raise the threshold."""
    play = FailingPool(count, max_unavailable="25%")
    play_out(play, at_a_time=threshold)
    broken = [name for name in sorted(play.nodes) if f"uid-{name}" in set(play.started)]
    for turn in range(3):
        play.leave(*broken[turn : turn + 1])
        play.lose_driver_pods(name for name in sorted(play.nodes)[turn::7] if name not in broken)
        play.join(f"joined-{turn}-a", f"joined-{turn}-b")
        play.settle()
    assert len(play.started) == threshold
    assert len(play.status.targets[NEW].failed) == threshold
    assert play.decider.waits["joined-0-a"].code is WaitCode.HALTED
