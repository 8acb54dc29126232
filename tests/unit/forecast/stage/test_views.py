"""Views: what they show and freeze, and that only changed ones are rebuilt."""

from libs.contracts.node import NodeRecord
from libs.rollout.decision import Decision
from libs.rollout.views.node import MalformedAnnotation
from libs.testing.stage import SimulatedStage, StageNodeSpec
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.stage.scenario import NODE, START, StageScenario
from tests.unit.rollout.builders import OLD, POOL, pool


def test_unchanged_views_are_the_same_objects() -> None:
    plans = [StageNodeSpec(name=name, pool=POOL, target=OLD) for name in ("n1", "n2")]
    stage = SimulatedStage([pool(rollout=None)], plans, world=SteadyWorld(), start=START)
    before = stage.fleet()
    scenario = StageScenario()
    scenario.stage = stage
    scenario.carry_out(scenario.write(state="upgrade-required"))
    after = stage.fleet()
    assert after.nodes["n2"] is before.nodes["n2"]
    assert after.nodes["n1"] is not before.nodes["n1"]
    assert after.pools[POOL] is before.pools[POOL]
    assert before.nodes["n1"].state == "upgrade-done", "an earlier fleet is immutable"


def test_changes_are_returned_once() -> None:
    scenario = StageScenario()
    assert [node.name for node in scenario.stage.pop_view_update().nodes] == [NODE]
    assert scenario.stage.pop_view_update() == ((), (), ())
    scenario.users.cordon(NODE)
    assert [node.cordoned for node in scenario.stage.pop_view_update().nodes] == [True]
    scenario.users.delete_node(NODE)
    assert scenario.stage.pop_view_update().nodes_gone == (NODE,)


def test_an_unreadable_record_is_reported_as_malformed() -> None:
    scenario = StageScenario()
    assert isinstance(scenario.node.record, NodeRecord)
    scenario.users.set_record(NODE, "nonsense")
    assert isinstance(scenario.node.record, MalformedAnnotation)
    scenario.users.set_record(NODE, None)
    assert scenario.node.record is None


def test_a_frozen_source_shows_old_state_and_becomes_stale() -> None:
    scenario = StageScenario()
    scenario.faults.freeze("nodes")
    scenario.users.cordon(NODE)
    scenario.advance(50)
    assert not scenario.node.cordoned
    now = scenario.stage.instant()
    assert now.at - now.visibility.sources["nodes"].proved == 50
    assert now.at == now.visibility.sources["pods"].proved
    scenario.faults.unfreeze("nodes")
    assert scenario.node.cordoned
    assert scenario.stage.instant().visibility.sources["nodes"].proved == scenario.stage.now


def test_a_probe_refreshes_a_quiet_source() -> None:
    scenario = StageScenario()
    scenario.faults.mute_source("pods")
    scenario.users.cordon(NODE)
    scenario.advance(30)
    source = scenario.stage.instant().visibility.sources["pods"]
    assert source.proved == START
    assert source.revision == scenario.node.revision, "the view still shows the change"
    scenario.stage.carry_out(Decision(probes=("pods",)))
    scenario.advance(1)
    source = scenario.stage.instant().visibility.sources["pods"]
    assert source.proved == source.probed
    assert source.proved > START + 30
