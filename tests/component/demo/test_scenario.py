"""The scenario: what is due when, and what is left out because a viewer did something else."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from demo.actions import (
    AnnounceRelease,
    AskPlans,
    Cordon,
    FinishJob,
    Release,
    RepairDriver,
    Retry,
    Scale,
    SetVersion,
)
from demo.carry_out import planned_text, release_edit
from demo.director import progress_text
from demo.fleet import SERVING, TRAINING, make_fleet
from demo.observed import Observed, SeenPod, SeenPool
from demo.people import holds, settings_of, still_unseen, told_changes
from demo.scenario import (
    CHAT,
    NEW,
    NEXT,
    OLD,
    SEARCH,
    Progress,
    Script,
    Turn,
    is_over,
    make_script,
    next_turn,
)
from demo.world import TOLD_JOB
from libs.contracts.queries import HeldNode, PlanAnswer, PlannedNode, WaitReason
from libs.contracts.rollout import (
    Brake,
    Counts,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.contracts.rollout import Release as Accepted
from libs.contracts.waits import WaitCode
from libs.ctl.answers import PlanView
from libs.fleet.node import Doing, FollowedNode
from libs.kube.authors import COMMAND, Author, release_author
from libs.kube.views import ManagedFields, Metadata

FLEET = make_fleet(12)


def pool(
    name: str,
    *,
    wanted: str = OLD,
    version: str = "",
    phase: RolloutPhase = RolloutPhase.COMPLETE,
    done: int = 6,
    **spec: Any,
) -> SeenPool:
    counts = Counts(total=6, done=done, failed=6 - done)
    status = RolloutStatus(version=version or wanted, phase=phase, counts=counts, target="t")
    return SeenPool(name=name, wanted=wanted, status=status, spec=RolloutSpec(**spec))


HELD = HeldNode(node="node", who="a person")


def seen_node(name: str, pool: str = TRAINING, **known: Any) -> FollowedNode:
    return FollowedNode(name=name, pool=pool, doing=Doing.DONE, **known)


def fleet_of(training: SeenPool, serving: SeenPool, **parts: Any) -> Observed:
    nodes = {
        name: seen_node(name, pool=owner, state="upgrade-done")
        for name, owner in FLEET.pool_of.items()
    }
    pools = {TRAINING: training, SERVING: serving}
    pods = tuple(
        SeenPod(workload=name, node=node, phase="Running")
        for name, node in ((TOLD_JOB, "node-1"), (CHAT, "node-2"), (SEARCH, "node-8"))
    )
    return replace(Observed(nodes=nodes, pools=pools, pods=pods), **parts)


def at_rest(version: str = OLD) -> Observed:
    return fleet_of(pool(TRAINING, wanted=version), pool(SERVING, wanted=version))


def turn_at(seen: Observed, *settled: str, script: Script | None = None) -> Turn:
    """Return the turn after these cues, once each condition has held for long enough."""
    script = script or make_script(FLEET)
    first = next_turn(script, Progress(frozenset(settled)), seen, now=0.0)
    held = replace(first.progress, settled=frozenset(settled))
    return next_turn(script, held, seen, now=100.0)


def due(seen: Observed, *settled: str) -> list[object]:
    return [action for cue in turn_at(seen, *settled).due for action in cue.do]


TO_BAD = ("workloads", "plan", "good driver", "bad driver")


def test_people_begin_once_the_whole_fleet_is_up() -> None:
    bringing_up = replace(at_rest(), pools={**at_rest().pools, SERVING: pool(SERVING, done=5)})
    assert due(bringing_up) == []
    assert due(at_rest())[0] == Cordon("node-6")


def test_a_condition_must_hold_for_a_while_and_without_a_break() -> None:
    script, seen = make_script(FLEET), at_rest()
    plain = Progress(frozenset({"workloads"}))
    first = next_turn(script, plain, seen, now=10.0)
    assert first.due == ()
    broken = next_turn(script, first.progress, replace(seen, pods=()), now=13.0)
    again = next_turn(script, broken.progress, seen, now=14.0)
    assert again.due == next_turn(script, again.progress, seen, now=16.9).due == ()
    (cue,) = next_turn(script, again.progress, seen, now=17.0).due
    assert cue.do == (AskPlans(FLEET.pools, NEW),)
    (cue,) = next_turn(script, again.progress, seen, now=15.5, speed=2.0).due
    assert cue.name == "plan"


def test_the_administrator_asks_for_the_version_after_the_plan() -> None:
    _, serving = FLEET.pools
    assert due(at_rest(), "workloads", "plan") == [SetVersion(serving, NEW)]


def test_a_fleet_of_one_pool_gets_a_driver_that_loads() -> None:
    script = make_script(make_fleet(1))
    (training,) = make_fleet(1).pools
    (cue,) = turn_at(at_rest(), "workloads", "plan", script=script).due
    assert cue.do == (SetVersion(training, NEW),)
    assert [each.name for each in script][3:] == ["job", "next plan"]


def test_a_pool_is_left_to_a_viewer_who_sets_its_version_first() -> None:
    other = fleet_of(pool(TRAINING), pool(SERVING, wanted="590.1"))
    turn = turn_at(other, "workloads", "plan")
    assert turn.due == ()
    assert [cue.name for cue in turn.moot] == ["good driver"]
    assert turn.moot[0].moot_says == "leaves pool serving to whoever has set its version"


def upgrading(waits: Mapping[str, WaitCode]) -> Observed:
    training = pool(TRAINING, wanted=NEW, phase=RolloutPhase.PROVING, done=3)
    seen = fleet_of(training, pool(SERVING, wanted=NEW))
    nodes = {
        name: replace(seen.nodes[name], wait=WaitReason(code=code, detail="", since=0.0))
        for name, code in waits.items()
    }
    return replace(seen, nodes={**seen.nodes, **nodes})


def test_the_job_ends_when_its_node_waits_for_it_and_not_before() -> None:
    assert due(upgrading({}), *TO_BAD) == []
    assert due(upgrading({"node-1": WaitCode.JOBS}), *TO_BAD) == [FinishJob(TOLD_JOB)]
    assert due(upgrading({"node-3": WaitCode.JOBS}), *TO_BAD) == []


def test_the_owners_make_room_when_their_budget_blocks() -> None:
    assert due(upgrading({"node-2": WaitCode.PDB}), *TO_BAD) == [Scale(CHAT, 2)]


def test_scenes_that_did_not_come_are_left_out_once_the_pool_is_upgraded() -> None:
    upgraded = fleet_of(pool(TRAINING, wanted=NEW), pool(SERVING, wanted=NEW))
    turn = turn_at(upgraded, *TO_BAD, "repair", "release", "retry")
    assert {cue.name for cue in turn.moot} == {"job", "budget"}


def test_the_job_goes_on_until_its_node_is_returned_that_a_viewer_keeps_out() -> None:
    upgraded = fleet_of(pool(TRAINING, wanted=NEW), pool(SERVING, wanted=NEW))
    leased = seen_node(
        "node-1",
        state="upgrade-required",
        held=HELD,
    )
    kept_out = replace(upgraded, nodes={**upgraded.nodes, "node-1": leased})
    turn = turn_at(kept_out, *TO_BAD, "repair", "release", "retry")
    assert {cue.name for cue in turn.moot} == {"budget"}


def test_the_other_pool_gets_the_driver_once_it_is_proven() -> None:
    training, _ = FLEET.pools
    cues = ("workloads", "plan", "good driver")
    proving = fleet_of(
        pool(TRAINING), pool(SERVING, wanted=NEW, phase=RolloutPhase.PROVING, done=0)
    )
    assert due(proving, *cues) == []
    proven = fleet_of(pool(TRAINING), pool(SERVING, wanted=NEW, phase=RolloutPhase.PROVEN, done=1))
    assert due(proven, *cues) == [SetVersion(training, NEW, is_bad=True)]


def halted(**spec: Any) -> Observed:
    training = pool(TRAINING, wanted=NEW, phase=RolloutPhase.HALTED, done=0, **spec)
    return fleet_of(training, pool(SERVING, wanted=NEW))


def test_a_halt_is_repaired_first_and_then_released() -> None:
    training, _ = FLEET.pools
    assert due(halted(), *TO_BAD) == [RepairDriver(NEW), AnnounceRelease(training, 15.0)]
    assert due(halted(), *TO_BAD, "repair") == [Release(training)]


def test_a_viewer_has_time_to_release_the_halt_before_the_demo_does() -> None:
    script = make_script(FLEET)
    first = next_turn(script, Progress(frozenset({*TO_BAD, "repair"})), halted(), now=10.0)
    assert next_turn(script, first.progress, halted(), now=24.9).due == ()
    assert next_turn(script, first.progress, halted(), now=24.9, speed=0.5).due == ()
    turn = next_turn(script, first.progress, upgrading({}), now=24.9)
    assert (turn.due, [cue.name for cue in turn.moot]) == ((), ["release"])
    (cue,) = next_turn(script, first.progress, halted(), now=25.0).due
    assert cue.name == "release"


def test_nothing_is_released_or_retried_that_others_have_released_and_retried() -> None:
    going = upgrading({})
    turn = turn_at(going, *TO_BAD, "repair")
    assert (turn.due, [cue.name for cue in turn.moot]) == ((), ["release"])
    turn = turn_at(going, *TO_BAD, "repair", "release")
    assert (turn.due, [cue.name for cue in turn.moot]) == ((), ["retry"])
    failed = {"node-3": seen_node("node-3", state="upgrade-failed")}
    stuck = replace(going, nodes={**going.nodes, **failed})
    assert due(stuck, *TO_BAD, "repair", "release") == [Retry(FLEET.pools[0])]


def test_it_is_over_when_all_cues_are_settled_and_all_nodes_are_done() -> None:
    script = make_script(FLEET)
    everything = frozenset(cue.name for cue in script)
    assert due(at_rest(NEW), *everything - {"next plan"}) == [AskPlans(FLEET.pools, NEXT)]
    assert is_over(script, Progress(everything), at_rest("590.1")), "any version of a viewer's"
    assert not is_over(script, Progress(everything - {"next plan"}), at_rest(NEW))
    going = fleet_of(pool(TRAINING, wanted=NEW), pool(SERVING, wanted=NEW, version=OLD))
    assert not is_over(script, Progress(everything), going)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 24])
def test_each_fleet_has_a_script_whose_cues_can_all_be_reached(count: int) -> None:
    fleet = make_fleet(count)
    script = make_script(fleet)
    names = [cue.name for cue in script]
    assert len(fleet.nodes) == count
    assert len(set(names)) == len(names)
    for place, cue in enumerate(script):
        assert set(cue.after) <= set(names[:place])
    assert ("bad driver" in names) is (count > 1)
    assert ("budget" in names) is (count > 6)
    assert any(isinstance(action, Cordon) for action in script[0].do) is (count > 4)


def test_what_others_set_is_told_and_what_the_demo_sets_is_not() -> None:
    before = settings_of(at_rest())
    after = fleet_of(
        replace(pool(TRAINING, wanted="590.1"), managers=("kubectl", "kubectl-patch")),
        pool(SERVING, wanted=NEW, version=OLD),
    )
    ours = {("version", SERVING): NEW}
    assert list(told_changes(before, after, ours=ours)) == [
        f"somebody else set version of training: {OLD} -> 590.1 (field manager kubectl-patch)",
    ]
    assert list(told_changes(settings_of(after), after, ours=ours)) == []
    assert list(told_changes({}, after, ours={})) == [], "nothing has changed at the first look"


def test_a_version_of_the_demo_that_somebody_sets_again_is_told() -> None:
    told: list[str] = []
    ours = {("version", SERVING): NEW}
    before = settings_of(at_rest())
    for version in (OLD, NEW, "999.99.99", NEW):
        seen = fleet_of(pool(TRAINING), pool(SERVING, wanted=version))
        told += told_changes(before, seen, ours=ours)
        ours = still_unseen(ours, before, settings_of(seen))
        before = settings_of(seen)
    assert told == [
        f"somebody else set version of serving: {NEW} -> 999.99.99",
        f"somebody else set version of serving: 999.99.99 -> {NEW}",
    ]


def test_what_the_demo_sets_is_ours_also_if_somebody_else_was_seen_first() -> None:
    ours = {("version", SERVING): NEW}
    before = settings_of(at_rest())
    other = settings_of(fleet_of(pool(TRAINING), pool(SERVING, wanted="999.99.99")))
    assert still_unseen(ours, before, other) == ours


def test_what_events_tell_with_its_author_is_not_told_again() -> None:
    seen = at_rest()
    node = seen_node("node-3", cordoned=True, held=HELD)
    release = Accepted(target="t", failures=2)
    after = fleet_of(
        pool(TRAINING, wanted=OLD, version=OLD, brake=Brake.PAUSE, release=release),
        pool(SERVING, wanted=OLD, version=OLD),
    )
    after = replace(after, nodes={**seen.nodes, "node-3": node})
    assert list(told_changes(settings_of(seen), after, ours={})) == []
    skipped = replace(seen, nodes={**seen.nodes, "node-3": replace(node, skipped=True)})
    (line,) = told_changes(settings_of(seen), skipped, ours={})
    assert line == "somebody else set skip of node-3: none -> skipped"


def test_the_administrator_releases_with_name_and_reason_as_sluice_does() -> None:
    status = RolloutStatus(
        target="t", version=NEW, targets={"t": TargetRecord(threshold=1, failed=("u1",))}
    )
    patch = release_edit("nvidiadriver-training", status, 1).patch
    assert patch["spec"] == {"release": {"target": "t", "failures": 1}}
    told = Metadata(
        name="nvidiadriver-training",
        annotations=patch["metadata"]["annotations"],
        managed_fields=(
            ManagedFields(manager=COMMAND, fields_v1=Raw(b'{"f:spec": {"f:release": {}}}')),
        ),
    )
    author = Author(name="administrator", reason="its image is repaired")
    assert release_author(told) == author


def test_a_plan_is_told_with_what_its_durations_rest_on() -> None:
    node = PlannedNode(node="n1", start_p50=0.0, end_p50=20.0)
    plan = PlanAnswer(pool="p", target="t", nodes=(node,), makespan_p50=20.0, makespan_p95=30.0)
    known = PlanView(version=NEW, plan=replace(plan, measured_nodes=6))
    assert planned_text(known) == (
        "20 s (p50), 30 s (p95); durations as 6 nodes of the pool took before"
    )
    assert planned_text(PlanView(version=NEW, plan=plan)) == (
        "20 s (p50), 30 s (p95); durations are assumed, as too few nodes of the pool were measured"
    )


def test_what_people_hold_up_is_named() -> None:
    node = seen_node("node-2", held=HELD)
    seen = fleet_of(pool(TRAINING), pool(SERVING, brake=Brake.FREEZE), nodes={"node-2": node})
    assert holds(seen) == ["serving has brake Freeze", "node-2 is leased by a person"]
    assert holds(at_rest()) == []
    seen = fleet_of(
        replace(pool(TRAINING), wanted=""),
        replace(pool(SERVING), max_unavailable="0", is_automatic=False),
    )
    assert holds(seen) == [
        "training has no NVIDIADriver",
        "serving has maxUnavailable 0",
        "serving has autoUpgrade false",
    ]


def test_a_deleted_node_is_told_once() -> None:
    seen = at_rest()
    left = replace(
        seen, nodes={name: node for name, node in seen.nodes.items() if name != "node-3"}
    )
    assert list(told_changes(settings_of(seen), left, ours={})) == [
        "somebody else deleted Node node-3"
    ]
    assert list(told_changes(settings_of(left), left, ours={})) == []


def test_a_deleted_policy_is_told_once() -> None:
    before = fleet_of(replace(pool(TRAINING), max_unavailable="4"), pool(SERVING))
    deleted = fleet_of(replace(pool(TRAINING), wanted=""), pool(SERVING))
    told = list(told_changes(settings_of(before), deleted, ours={("version", TRAINING): OLD}))
    assert told == ["somebody else deleted NVIDIADriver training"]


def test_the_progress_names_a_pool_that_is_halted() -> None:
    text = progress_text(fleet_of(pool(TRAINING, phase=RolloutPhase.HALTED, done=5), pool(SERVING)))
    assert text == "11 of 12 nodes are done, training is halted"
