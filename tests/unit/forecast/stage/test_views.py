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
    scene = StageScenario()
    scene.stage = stage
    scene.carry_out(scene.write(state="upgrade-required"))
    after = stage.fleet()
    assert after.nodes["n2"] is before.nodes["n2"]
    assert after.nodes["n1"] is not before.nodes["n1"]
    assert after.pools[POOL] is before.pools[POOL]
    assert before.nodes["n1"].state == "upgrade-done", "an earlier fleet stays what it was"


def test_changes_are_returned_once() -> None:
    scene = StageScenario()
    assert [node.name for node in scene.stage.pop_view_update().nodes] == [NODE]
    assert scene.stage.pop_view_update() == ((), (), ())
    scene.users.cordon(NODE)
    assert [node.cordoned for node in scene.stage.pop_view_update().nodes] == [True]
    scene.users.delete_node(NODE)
    assert scene.stage.pop_view_update().nodes_gone == (NODE,)


def test_a_record_that_cannot_be_read_says_why() -> None:
    scene = StageScenario()
    assert isinstance(scene.node.record, NodeRecord)
    scene.users.set_record(NODE, "nonsense")
    assert isinstance(scene.node.record, MalformedAnnotation)
    scene.users.set_record(NODE, None)
    assert scene.node.record is None


def test_a_frozen_source_shows_old_state_and_becomes_stale() -> None:
    scene = StageScenario()
    scene.faults.freeze("nodes")
    scene.users.cordon(NODE)
    scene.advance(50)
    assert not scene.node.cordoned
    now = scene.stage.instant()
    assert now.at - now.visibility.sources["nodes"].proved == 50
    assert now.at == now.visibility.sources["pods"].proved
    scene.faults.unfreeze("nodes")
    assert scene.node.cordoned
    assert scene.stage.instant().visibility.sources["nodes"].proved == scene.stage.now


def test_a_probe_refreshes_a_quiet_source() -> None:
    scene = StageScenario()
    scene.faults.mute_source("pods")
    scene.users.cordon(NODE)
    scene.advance(30)
    source = scene.stage.instant().visibility.sources["pods"]
    assert source.proved == START
    assert source.revision == scene.node.revision, "what happens is shown all the same"
    scene.stage.carry_out(Decision(probes=("pods",)))
    scene.advance(1)
    source = scene.stage.instant().visibility.sources["pods"]
    assert source.proved == source.probed
    assert source.proved > START + 30
