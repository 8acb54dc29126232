"""Guarded writes, their consequences, and their entries in the journal."""

from typing import Any

import msgspec

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, REQUEST_ANNOTATION, NodeLease, NodeRequest
from libs.contracts.paths import CORDON, set_path
from libs.contracts.rollout import Brake, RolloutStatus
from libs.kube.changes import changed_paths
from libs.rollout.decision import Decision, WriteRollout
from libs.rollout.views.node import NodeField
from libs.testing.not_none import not_none
from libs.testing.stage.recorder import leaves_of_rollout
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, TOKEN, StageScenario
from tests.unit.rollout.builders import POOL


def codes(scenario: StageScenario, kind: str = "Node") -> list[tuple[str, str, int]]:
    return [
        (revision.verb.value, revision.manager, revision.code)
        for revision in scenario.stage.journal().revisions or ()
        if revision.kind == kind and revision.manager == MANAGER
    ]


def test_a_current_write_is_stored() -> None:
    scenario = StageScenario()
    scenario.carry_out(
        scenario.write(state="pod-deletion-required", lease=scenario.lease(), unschedulable=True)
    )
    node = scenario.node
    assert (node.state, node.cordoned) == ("pod-deletion-required", True)
    assert isinstance(node.lease, NodeLease)
    assert node.lease.token == TOKEN
    assert node.field_managers[NodeField.CORDON] == (MANAGER,)
    assert codes(scenario) == [("apply", MANAGER, 200)]


def test_a_write_on_an_older_revision_is_a_conflict() -> None:
    scenario = StageScenario()
    stale_write = scenario.write(state="upgrade-required")
    scenario.users.cordon(NODE)
    scenario.carry_out(stale_write)
    assert scenario.node.state == "upgrade-done"
    assert codes(scenario) == [("apply", MANAGER, 409)]


def test_a_write_to_a_recreated_node_is_a_conflict() -> None:
    scenario = StageScenario()
    stale_write = scenario.write(state="upgrade-required")
    scenario.users.delete_node(NODE)
    scenario.carry_out(stale_write)
    assert scenario.stage.node(NODE) is None
    scenario.users.register(NODE, POOL)
    scenario.carry_out(stale_write)
    assert scenario.node.state == ""
    assert codes(scenario) == 2 * [("apply", MANAGER, 409)]


def test_an_unchanged_write_has_no_revision() -> None:
    scenario = StageScenario()
    before = scenario.node.revision
    scenario.carry_out(scenario.write())
    assert scenario.node.revision == before
    assert [revision.changed for revision in scenario.stage.journal().revisions or ()] == [{}]


def test_a_cordon_shared_with_a_person_stays_when_ours_is_dropped() -> None:
    scenario = StageScenario(cordoned_by="kubectl-cordon")
    scenario.carry_out(scenario.write(unschedulable=True))
    assert scenario.node.field_managers[NodeField.CORDON] == ("kubectl-cordon", MANAGER)
    scenario.carry_out(scenario.write(unschedulable=None))
    assert scenario.node.cordoned
    assert scenario.node.other_managers(NodeField.CORDON) == ("kubectl-cordon",)


def test_the_taint_follows_the_cordon() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.write(unschedulable=True), wait=0.1)
    assert (scenario.node.cordoned, scenario.node.cordon_taint) == (True, False)
    scenario.advance(0.3)
    assert scenario.node.cordon_taint
    scenario.carry_out(scenario.write(unschedulable=None), wait=1.0)
    assert (scenario.node.cordoned, scenario.node.cordon_taint) == (False, False)


def test_a_request_is_emptied_and_then_dropped() -> None:
    scenario = StageScenario()
    scenario.users.set_request(NODE, "adopt")
    assert scenario.node.request is NodeRequest.ADOPT
    scenario.carry_out(scenario.write(cleared=(REQUEST_ANNOTATION,)))
    assert scenario.node.request is None
    assert scenario.node.is_owned(NodeField.REQUEST)
    scenario.carry_out(scenario.write())
    assert not scenario.node.is_owned(NodeField.REQUEST)


def write_rollout(scenario: StageScenario, **changes: Any) -> None:
    current = scenario.stage.pool(POOL).rollout
    defaults: dict[str, Any] = {"status": RolloutStatus(target="t")}
    if current is not None:
        defaults |= {"uid": current.uid, "revision": current.revision}
    write = WriteRollout(pool=POOL, **defaults | changes)
    scenario.stage.carry_out(Decision(rollouts=(write,)))


def is_write_pending(scenario: StageScenario) -> bool:
    current = not_none(scenario.stage.pool(POOL).rollout)
    return current.write_pending


def test_a_rollout_is_created_once_and_updates_are_guarded() -> None:
    scenario = StageScenario()
    write_rollout(scenario, brake=Brake.PAUSE)
    assert scenario.stage.pool(POOL).rollout is None
    scenario.advance(1)
    created = not_none(scenario.stage.pool(POOL).rollout)
    assert (created.spec.brake, created.write_pending) == (Brake.PAUSE, False)
    write_rollout(scenario, uid="", revision="")
    scenario.advance(1)
    write_rollout(scenario, revision="1")
    scenario.advance(1)
    write_rollout(scenario, status=RolloutStatus(target="u"))
    scenario.advance(1)
    assert codes(scenario, "Rollout") == [
        ("create", MANAGER, 201), ("create", MANAGER, 409), ("update", MANAGER, 409),
        ("update", MANAGER, 200),
    ]  # fmt: skip
    updated = not_none(scenario.stage.pool(POOL).rollout)
    assert updated.status.target == "u"


def test_a_rollout_shows_its_pending_write() -> None:
    scenario = StageScenario()
    write_rollout(scenario)
    scenario.advance(1)
    write_rollout(scenario, status=RolloutStatus(target="u"))
    assert is_write_pending(scenario)
    scenario.advance(1)
    assert not is_write_pending(scenario)


def test_the_journal_has_the_paths_that_a_server_writes() -> None:
    scenario = StageScenario()
    scenario.carry_out(
        scenario.write(state="upgrade-required", driver_label=NEW_LABEL, unschedulable=True)
    )
    change = next(iter(scenario.stage.journal().revisions or ()))
    assert change.verb is Verb.APPLY
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for path, (old, new) in change.changed.items():
        set_path(before, path, old)
        set_path(after, path, new)
    assert changed_paths(before, after) == change.changed
    assert change.changed[CORDON] == (None, True)


def test_the_paths_of_a_rollout_are_those_that_a_server_writes() -> None:
    scenario = StageScenario()
    write_rollout(scenario)
    scenario.advance(1)
    stage_rollout = not_none(scenario.stage.state.pools[POOL].rollout)
    whole = {
        "metadata": {
            "name": POOL,
            "uid": stage_rollout.uid,
            "finalizers": ["sluice.dev/open-rollout"],
        },
        "spec": msgspec.to_builtins(stage_rollout.spec),
        "status": msgspec.to_builtins(stage_rollout.status),
    }
    leaves = {path: (None, value) for path, value in leaves_of_rollout(POOL, stage_rollout).items()}
    assert changed_paths(None, whole) == leaves
