"""Properties of every node at rest, in any state."""

from hypothesis import assume, event, given
from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait, WriteNode
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from libs.testing.not_none import not_none
from tests.unit.rollout.at_rest.strategies import INSTANTS, nodes, pools
from tests.unit.rollout.builders import apply_step, handle_edits, step_at_rest


def outcome_of(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """Return the outcome of a step; skip nodes that are in flight."""
    outcome = handle_edits(node, pool, now)
    if outcome is not None:
        return outcome
    assume(node.upgrade_lease is None)
    return step_at_rest(node, pool, now)


def is_proven(node: NodeView, pool: PoolView) -> bool:
    """Whether the record proves what runs now, written independently of the engine."""
    record = node.current_record
    evidence = None if record is None else record.evidence
    if evidence is None or not evidence.passed:
        return False
    current = (node.uid, node.boot_id, node.kernel, node.driver_label)
    if (evidence.node_uid, evidence.boot_id, evidence.kernel, evidence.label) != current:
        return False
    if pool.method is not InstallMethod.CONTAINER:
        loaded = node.loaded
        return loaded is not None and abs(loaded.loaded_at - evidence.driver_started) < 1
    return any(
        pod.uid == evidence.driver_pod_uid
        and pod.label == node.driver_label
        and pod.ready
        and not pod.deleting
        and pod.started is not None
        and abs(pod.started - evidence.driver_started) < 1
        for pod in node.driver_pods
    )


def is_in_place(node: NodeView, pool: PoolView) -> bool:
    """Whether the node is as its policy wants it: without our values, or proven on the target."""
    record = node.current_record
    unwanted = node.excluded or node.pool != pool.key
    if record is None and not node.driver_label and (unwanted or pool.gone):
        return True
    build = pool.build(pool.target, node.variant)
    return (
        not unwanted
        and not pool.gone
        and record is not None
        and record.state == node.state == "upgrade-done"
        and build is not None
        and build.readiness is Readiness.SETTLED
        and build.label == node.driver_label
        and is_proven(node, pool)
    )


def kind(outcome: NodeOutcome) -> str:
    match outcome:
        case Wait():
            return f"wait: {outcome.code.value}"
        case Candidate():
            return f"candidate: {outcome.operation.value}"
        case Step():
            return (
                f"step: {', '.join(sorted({type(action).__name__ for action in outcome.actions}))}"
            )
        case _:
            return "in place"


@given(nodes(), pools(), INSTANTS)
def test_a_node_that_is_not_in_place_has_an_outcome(
    node: NodeView, pool: PoolView, now: Instant
) -> None:
    outcome = outcome_of(node, pool, now)
    event(kind(outcome))
    if outcome is None:
        assert is_in_place(node, pool)
    elif isinstance(outcome, Wait):
        assert outcome.detail
        assert outcome.who
        assert outcome.since == now.at
        assert outcome.until is None or outcome.until > now.at
    elif isinstance(outcome, Step):
        assert outcome.actions
        assert outcome.because


@given(nodes(), pools(), INSTANTS)
def test_steps_do_not_repeat_and_end(node: NodeView, pool: PoolView, now: Instant) -> None:
    taken: list[object] = []
    for _ in range(8):
        outcome = outcome_of(node, pool, now)
        if not isinstance(outcome, Step):
            return
        actions = [
            replace(action, revision="") if isinstance(action, WriteNode) else action
            for action in outcome.actions
        ]
        assert actions not in taken
        taken.append(actions)
        node = apply_step(node, outcome)
    raise AssertionError(f"no end after {len(taken)} steps: {taken[-2:]}")


@given(nodes(), pools(), INSTANTS)
def test_a_node_at_rest_keeps_its_cordon_and_its_driver_label(
    node: NodeView, pool: PoolView, now: Instant
) -> None:
    """They change under a lease only, or when a user requests `forget`."""
    outcome = outcome_of(node, pool, now)
    if not isinstance(outcome, Step) or node.upgrade_lease is not None:
        return
    after = apply_step(node, outcome)
    dropped = node.current_record is not None and after.current_record is None
    assert dropped or after.cordoned is node.cordoned
    assert after.driver_label in ("", node.driver_label)
    for action in outcome.actions:
        if isinstance(action, WriteNode):
            assert not action.lowers_capacity
            assert action.applied.unschedulable in (None, node.cordoned)


@given(nodes(), pools(), INSTANTS)
def test_done_is_written_only_with_a_proof_of_what_runs(
    node: NodeView, pool: PoolView, now: Instant
) -> None:
    outcome = outcome_of(node, pool, now)
    if not isinstance(outcome, Step) or node.upgrade_lease is not None:
        return
    before = node.current_record
    for action in outcome.actions:
        if isinstance(action, WriteNode) and action.applied.state == "upgrade-done":
            assert action.applied.record is not None
            if before is not None and before.state == "upgrade-required" and node.request is None:
                assert is_proven(node, pool)
            assert before is None or before.state != "upgrade-failed" or node.request is not None


@given(nodes(), pools(), INSTANTS)
def test_a_candidate_fulfils_every_condition_of_a_start(
    node: NodeView, pool: PoolView, now: Instant
) -> None:
    outcome = outcome_of(node, pool, now)
    if not isinstance(outcome, Candidate):
        return
    assert node.ready
    assert not pool.gone
    assert node.current_lease is None
    assert not isinstance(node.lease, MalformedAnnotation)
    assert now.visibility.bus_down_since is None
    assert not now.visibility.foreign_operator
    if outcome.operation is Operation.REMOVE:
        assert (outcome.target, outcome.label) == ("", "")
        return
    build = not_none(pool.build(outcome.target, node.variant))
    assert (build.label, build.readiness) == (outcome.label, Readiness.SETTLED)
    if outcome.operation is Operation.BRING_UP:
        assert node.loaded is None
        assert node.modules_reported
    if outcome.outside and outcome.operation is not Operation.VALIDATE:
        record = node.record
        assert isinstance(record, NodeRecord)
        assert record.evidence is None or not record.evidence.passed
    if outcome.operation is not Operation.VALIDATE:
        assert not node.skip


@given(nodes(), pools(), INSTANTS)
def test_irrelevant_fields_do_not_change_the_outcome(
    node: NodeView, pool: PoolView, now: Instant
) -> None:
    other = replace(
        node,
        created=1.0,
        gpus=1,
        upgrade_last=True,
        cordon_taint=not node.cordon_taint,
        keep_cordoned=True,
        last_wait=Wait(code=WaitCode.BUDGET, detail="x", since=1.0),
        components=dict(reversed(list(node.components.items()))),
        driver_pods=tuple(reversed(node.driver_pods)),
    )
    outcome, other_outcome = outcome_of(node, pool, now), outcome_of(other, pool, now)
    assert kind(outcome) == kind(other_outcome)
    if not isinstance(outcome, Step | Candidate) and len(node.driver_pods) < 2:
        assert outcome == other_outcome
