"""Startup taints on simulated clusters: the first `upgrade-done` removes them, and nothing else."""

from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.rollout.decide import decide
from libs.rollout.decision import Decision, WriteNode
from libs.rollout.views.fleet import Fleet, Instant
from tests.component.rollout.simulation.policies import OTHERS_TAINT, STARTUP_TAINT
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import TAINTS, scenario


class _Removals:
    """The writes that remove taints, and those that say how the list is to stay."""

    def __init__(self) -> None:
        self.removals = 0
        self.kept_lists = 0

    def decide(self, fleet: Fleet, now: Instant) -> Decision:
        decision = decide(fleet, now)
        for name, step in decision.steps.items():
            for action in step.actions:
                if isinstance(action, WriteNode) and action.applied.taints is not None:
                    self._observe(fleet, name, action)
        return decision

    def _observe(self, fleet: Fleet, name: str, write: WriteNode) -> None:
        before, after = fleet.nodes[name].taints, write.applied.taints or ()
        if before == after:
            self.kept_lists += 1
            return
        assert after == tuple(taint for taint in before if taint.key != STARTUP_TAINT)
        assert write.applied.state == UpgradeState.UPGRADE_DONE
        assert write.applied.lease is None
        self.removals += 1


def test_only_the_first_upgrade_done_removes_startup_taints() -> None:
    seen, others_kept = _Removals(), 0
    for seed in range(TAINTS + 40, TAINTS + 60):
        result = run_scenario(scenario(seed), seen.decide)
        assert result.failure is None, (seed, result.failure)
        untainted = {act.node for act in result.scenario.disturbances if act.what == "untaint"}
        for node in result.scenario.nodes:
            there = result.stage.state.nodes.get(node.name)
            if there is not None and node.name not in untainted:
                others_kept += OTHERS_TAINT in there.view.taints
    assert seen.removals >= 3
    assert seen.kept_lists >= 3
    assert others_kept >= 10


def test_a_node_that_was_done_keeps_the_taint() -> None:
    """A taint that a person gives it later is not its startup taint."""
    calm = scenario(TAINTS)
    nodes = tuple(replace(node, target="A") for node in calm.nodes)
    with_taint = tuple(
        replace(node, taints=(replace(OTHERS_TAINT, key=STARTUP_TAINT),)) for node in nodes
    )
    seen = _Removals()
    result = run_scenario(replace(calm, nodes=with_taint, disturbances=()), seen.decide)
    assert result.failure is None
    assert seen.removals == 0
    assert any(there.view.taints for there in result.stage.state.nodes.values())
