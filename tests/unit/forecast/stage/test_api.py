"""Guarded writes, their consequences, and their entries in the journal."""

from typing import Any

import msgspec

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, REQUEST_ANNOTATION, NodeLease, NodeRequest
from libs.contracts.paths import CORDON, set_path
from libs.contracts.rollout import Brake, RolloutStatus
from libs.rollout.decision import Decision, WriteRollout
from libs.rollout.views.node import NodeField
from libs.testing.changes import changed_paths
from libs.testing.stage.recorder import leaves_of_rollout
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, TOKEN, StageScenario
from tests.unit.rollout.builders import POOL


def codes(scene: StageScenario, kind: str = "Node") -> list[tuple[str, str, int]]:
    return [
        (each.verb.value, each.manager, each.code)
        for each in scene.stage.journal().revisions or ()
        if each.kind == kind and each.manager == MANAGER
    ]


def test_a_current_write_is_stored() -> None:
    scene = StageScenario()
    scene.carry_out(
        scene.write(state="pod-deletion-required", lease=scene.lease(), unschedulable=True)
    )
    node = scene.node
    assert (node.state, node.cordoned) == ("pod-deletion-required", True)
    assert isinstance(node.lease, NodeLease)
    assert node.lease.token == TOKEN
    assert node.field_managers[NodeField.CORDON] == (MANAGER,)
    assert codes(scene) == [("apply", MANAGER, 200)]


def test_a_write_on_an_older_revision_is_a_conflict() -> None:
    scene = StageScenario()
    late = scene.write(state="upgrade-required")
    scene.users.cordon(NODE)
    scene.carry_out(late)
    assert scene.node.state == "upgrade-done"
    assert codes(scene) == [("apply", MANAGER, 409)]


def test_a_write_to_a_node_of_the_same_name_is_a_conflict_and_makes_nothing() -> None:
    scene = StageScenario()
    late = scene.write(state="upgrade-required")
    scene.users.delete_node(NODE)
    scene.carry_out(late)
    assert scene.stage.node(NODE) is None
    scene.users.register(NODE, POOL)
    scene.carry_out(late)
    assert scene.node.state == ""
    assert codes(scene) == 2 * [("apply", MANAGER, 409)]


def test_an_unchanged_write_has_no_revision() -> None:
    scene = StageScenario()
    before = scene.node.revision
    scene.carry_out(scene.write())
    assert scene.node.revision == before
    assert [each.changed for each in scene.stage.journal().revisions or ()] == [{}]


def test_a_cordon_that_a_person_has_too_stays_when_we_give_ours_up() -> None:
    scene = StageScenario(cordoned_by="kubectl-cordon")
    scene.carry_out(scene.write(unschedulable=True))
    assert scene.node.field_managers[NodeField.CORDON] == ("kubectl-cordon", MANAGER)
    scene.carry_out(scene.write(unschedulable=None))
    assert scene.node.cordoned
    assert scene.node.other_managers(NodeField.CORDON) == ("kubectl-cordon",)


def test_a_cordon_is_followed_by_its_taint_in_both_directions() -> None:
    scene = StageScenario()
    scene.carry_out(scene.write(unschedulable=True), wait=0.1)
    assert (scene.node.cordoned, scene.node.cordon_taint) == (True, False)
    scene.advance(0.3)
    assert scene.node.cordon_taint
    scene.carry_out(scene.write(unschedulable=None), wait=1.0)
    assert (scene.node.cordoned, scene.node.cordon_taint) == (False, False)


def test_a_request_is_emptied_and_then_gone() -> None:
    scene = StageScenario()
    scene.users.set_request(NODE, "adopt")
    assert scene.node.request is NodeRequest.ADOPT
    scene.carry_out(scene.write(cleared=(REQUEST_ANNOTATION,)))
    assert scene.node.request is None
    assert scene.node.is_owned(NodeField.REQUEST)
    scene.carry_out(scene.write())
    assert not scene.node.is_owned(NodeField.REQUEST)


def rollout(scene: StageScenario, **changes: Any) -> None:
    seen = scene.stage.pool(POOL).rollout
    usual: dict[str, Any] = {"status": RolloutStatus(target="t")}
    if seen is not None:
        usual |= {"uid": seen.uid, "revision": seen.revision}
    write = WriteRollout(pool=POOL, **usual | changes)
    scene.stage.carry_out(Decision(rollouts=(write,)))


def is_written(scene: StageScenario) -> bool:
    seen = scene.stage.pool(POOL).rollout
    assert seen is not None
    return seen.write_pending


def test_a_rollout_is_made_once_and_then_compared() -> None:
    scene = StageScenario()
    rollout(scene, brake=Brake.PAUSE)
    assert scene.stage.pool(POOL).rollout is None
    scene.advance(1)
    created = scene.stage.pool(POOL).rollout
    assert created is not None
    assert (created.spec.brake, created.write_pending) == (Brake.PAUSE, False)
    rollout(scene, uid="", revision="")
    scene.advance(1)
    rollout(scene, revision="1")
    scene.advance(1)
    rollout(scene, status=RolloutStatus(target="u"))
    scene.advance(1)
    assert codes(scene, "Rollout") == [
        ("create", MANAGER, 201), ("create", MANAGER, 409), ("update", MANAGER, 409),
        ("update", MANAGER, 200),
    ]  # fmt: skip
    now = scene.stage.pool(POOL).rollout
    assert now is not None
    assert now.status.target == "u"


def test_a_rollout_that_is_being_written_says_so() -> None:
    scene = StageScenario()
    rollout(scene)
    scene.advance(1)
    rollout(scene, status=RolloutStatus(target="u"))
    assert is_written(scene)
    scene.advance(1)
    assert not is_written(scene)


def test_the_journal_has_the_paths_that_a_server_writes() -> None:
    scene = StageScenario()
    scene.carry_out(
        scene.write(state="upgrade-required", driver_label=NEW_LABEL, unschedulable=True)
    )
    change = next(iter(scene.stage.journal().revisions or ()))
    assert change.verb is Verb.APPLY
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for path, (old, new) in change.changed.items():
        set_path(before, path, old)
        set_path(after, path, new)
    assert changed_paths(before, after) == change.changed
    assert change.changed[CORDON] == (None, True)


def test_the_paths_of_a_rollout_are_those_that_a_server_writes() -> None:
    scene = StageScenario()
    rollout(scene)
    scene.advance(1)
    there = scene.stage.state.pools[POOL].rollout
    assert there is not None
    whole = {
        "metadata": {"name": POOL, "uid": there.uid, "finalizers": ["sluice.dev/open-rollout"]},
        "spec": msgspec.to_builtins(there.spec),
        "status": msgspec.to_builtins(there.status),
    }
    leaves = {path: (None, value) for path, value in leaves_of_rollout(POOL, there).items()}
    assert changed_paths(None, whole) == leaves
