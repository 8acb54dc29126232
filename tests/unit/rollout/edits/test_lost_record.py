"""Records that are gone or unreadable: nothing happens until a person decides."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Quiesce, Swap
from libs.contracts.node import (
    MANAGER,
    REQUEST_ANNOTATION,
    LeaseOwner,
    NodeRecord,
    NodeRequest,
    Operation,
)
from libs.contracts.reports import Progress
from libs.contracts.rollout import InFlight
from libs.rollout.decision import (
    Candidate,
    NodeApplyConfiguration,
    Notice,
    NoticeKind,
    Step,
    Wait,
    WriteNode,
    WriteSlot,
)
from libs.rollout.lost_record import highest_token
from libs.rollout.views.machine import Component
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    EPOCH,
    NEW,
    NOW,
    OLD,
    PERSON,
    POOL,
    TOKEN,
    apply_step,
    command,
    component,
    done,
    driver_pod,
    ended,
    failed,
    granted,
    handle_edits,
    in_flight_node,
    instant,
    label_of,
    lease,
    node,
    node_case,
    pool,
    record,
    required,
    step_at_rest,
)
from tests.unit.rollout.edits.test_requests import with_request
from tests.unit.rollout.outcomes import candidate_of, step_of, wait_of


def without(node: NodeView, *fields: NodeField) -> NodeView:
    owners = {field: names for field, names in node.field_managers.items() if field not in fields}
    return replace(node, field_managers=owners)


def no_record(view: NodeView) -> NodeView:
    return replace(without(view, NodeField.RECORD), record=None)


def no_lease(view: NodeView) -> NodeView:
    return replace(without(view, NodeField.LEASE), lease=None)


def with_token(view: NodeView, token: int) -> NodeView:
    part = component(command(Quiesce(), order=(token, 1)))
    return replace(view, components={**view.components, "plugin": part})


IN_FLIGHT = granted(pool(), node())
"""The grant of node-1 has token 1."""

ALL_OVERWRITTEN = dict.fromkeys((NodeField.RECORD, NodeField.STATE, NodeField.DRIVER), (PERSON,))

LOST: dict[str, tuple[NodeView, PoolView]] = {
    "gone, done": (no_record(done(target=OLD)), pool()),
    "gone, failed": (no_record(failed()), pool()),
    "gone, stamped": (no_record(required()), pool()),
    "gone, in flight": (no_record(in_flight_node("pod-deletion-required")), pool()),
    "gone, and the state too, with a label that is not wanted": (
        replace(without(no_record(done(target=OLD)), NodeField.STATE), state=""),
        pool(),
    ),
    "gone, and all but the lease": (
        node(lease=lease(), field_managers={NodeField.LEASE: (MANAGER,)}),
        pool(),
    ),
    "garbled, done": (done(record=MalformedAnnotation("not JSON")), pool()),
    "garbled by a person, with a lease of ours": (
        replace(
            in_flight_node("drain-required", field_managers={NodeField.RECORD: (PERSON,)}),
            record=MalformedAnnotation("{"),
        ),
        pool(),
    ),
    "garbled by a person, with the state removed": (
        replace(
            without(done(), NodeField.STATE),
            record=MalformedAnnotation("{"),
            state="",
            field_managers={NodeField.RECORD: (PERSON,), NodeField.DRIVER: (MANAGER,)},
        ),
        pool(),
    ),
    "garbled by a person, who overwrote the labels too": (
        done(record=MalformedAnnotation("{"), field_managers=ALL_OVERWRITTEN),
        pool(),
    ),
    "garbled by a person, on a node whose agents alone know of a command": (
        node(
            record=MalformedAnnotation("{"),
            field_managers=ALL_OVERWRITTEN,
            components={"driver": component(highest_order=Order(0, 1))},
        ),
        pool(),
    ),
    "rewritten by a person": (
        done(field_managers={**done().field_managers, NodeField.RECORD: (PERSON,)}),
        pool(),
    ),
    "the lease is gone": (no_lease(in_flight_node("pod-deletion-required")), pool()),
    "the lease is garbled": (
        replace(in_flight_node("validation-required"), lease=MalformedAnnotation("{")),
        pool(),
    ),
    "the lease is of an earlier node": (
        in_flight_node("validation-required", lease=lease(node_uid="uid-of-earlier")),
        pool(),
    ),
    "a lease of ours that the record does not know": (done(lease=lease()), pool()),
    "nothing on it, but an agent has heard of what the Rollout has in flight": (
        with_token(node(), 1),
        IN_FLIGHT,
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_a_node_with_a_lost_record_is_left_alone(case: str) -> None:
    node, pool = LOST[case]
    outcome = handle_edits(node, pool)
    waits = wait_of(outcome.wait if isinstance(outcome, Step) else outcome)
    assert (waits.code, waits.until, waits.since) == ("record-lost", None, NOW)
    assert "adopt" in waits.who
    assert "forget" in waits.who
    if isinstance(outcome, Step):
        assert all(isinstance(action, WriteSlot) for action in outcome.actions)


SWAP = command(Swap(label=label_of(NEW), old_pod_uid="old", install_digest="install"))
PAUSED = command(Quiesce())
AT_WORK = Progress(epoch=EPOCH, token=TOKEN, op=1, command="swap", phase="unload")
COMMANDED = {
    "discovery": component(command(Idle())),
    "driver": component(SWAP),
    "telemetry": component(PAUSED, result=ended(PAUSED)),
    "validator": component(replace(PAUSED, node_uid="another")),
}
STRIPPED = no_lease(in_flight_node("pod-restart-required", components=COMMANDED))


def test_commands_that_have_not_begun_are_withdrawn_without_a_lease() -> None:
    step = step_of(handle_edits(STRIPPED))
    slots = [action for action in step.actions if isinstance(action, WriteSlot)]
    commands = {action.component: action.command for action in slots}
    assert commands.keys() == {"driver", "telemetry"}
    for slot in commands.values():
        assert (slot.kind, slot.open()) == ("idle", Idle())
        assert slot.order > (TOKEN, 1)
    assert "driver, telemetry" in step.because


def replaced(**parts: Component) -> NodeView:
    return replace(STRIPPED, components={**COMMANDED, **parts})


@pytest.mark.parametrize(
    ("view", "away"),
    [
        (replaced(driver=component(SWAP, progress=AT_WORK)), None),
        (replace(STRIPPED, lease=MalformedAnnotation("{")), None),
        (replace(in_flight_node(components=COMMANDED), record=MalformedAnnotation("{")), None),
        (STRIPPED, NOW - 5),
    ],
)
def test_a_command_in_progress_or_under_a_lease_is_not_withdrawn(
    view: NodeView, away: float | None
) -> None:
    assert wait_of(handle_edits(view, pool(), instant(bus_down_since=away))).code == "record-lost"


@pytest.mark.parametrize(
    "driver",
    [
        component(SWAP, progress=AT_WORK, result=ended(SWAP)),
        component(SWAP, progress=replace(AT_WORK, op=0)),
    ],
)
def test_finished_or_unrelated_progress_does_not_keep_a_command(driver: Component) -> None:
    assert len(step_of(handle_edits(replaced(driver=driver))).actions) == 2


NOT_LOST: dict[str, tuple[NodeView, PoolView]] = {
    "a new node": (node(), pool()),
    "a new node that was granted a start": (node(), IN_FLIGHT),
    "a new node whose agents know an earlier token": (
        replace(
            node(),
            components={name: component(highest_order=Order(4, 2)) for name in node().components},
        ),
        granted(pool(), node(), token=5),
    ),
    "a Node made anew: record and lease of another uid": (
        replace(
            done(),
            uid="uid-new",
            lease=lease(),
            field_managers=dict.fromkeys(
                (NodeField.RECORD, NodeField.STATE, NodeField.DRIVER), ("velero",)
            ),
        ),
        pool(),
    ),
    "a record that a person owns too": (
        done(field_managers={**done().field_managers, NodeField.RECORD: (MANAGER, PERSON)}),
        pool(),
    ),
    "no field has a known owner": (done(field_managers={}), pool()),
    "its lease was taken over by a person": (
        in_flight_node("drain-required", lease=lease(owner=LeaseOwner.HUMAN)),
        pool(),
    ),
    "it is gone, and a person has the node leased": (
        no_record(done(lease=lease(owner=LeaseOwner.HUMAN))),
        pool(),
    ),
    "a foreign note in place of a record, on a node that was never ours": (
        node(record=MalformedAnnotation("hello"), field_managers={NodeField.RECORD: (PERSON,)}),
        pool(),
    ),
    "a foreign note in place of a record, where an earlier Node of that name had commands": (
        node(
            record=MalformedAnnotation("hello"),
            field_managers={NodeField.RECORD: (PERSON,)},
            components={
                "driver": component(
                    replace(command(Idle()), node_uid="another"), highest_order=Order(0, 0)
                )
            },
        ),
        pool(),
    ),
    "gone with all that was ours: only commands are left": (
        node(components=done().components),
        pool(),
    ),
    "left over from what was cleared": (
        node(field_managers={NodeField.REQUEST: (MANAGER,)}),
        pool(),
    ),
    "its cordon alone is ours": (
        node(cordoned=True, field_managers={NodeField.CORDON: (MANAGER,)}),
        pool(),
    ),
    "removed, no record, and the driver label is right": (
        replace(without(no_record(done()), NodeField.STATE), state=""),
        pool(),
    ),
}


@pytest.mark.parametrize("case", NOT_LOST)
def test_without_a_managed_field_no_record_is_lost(case: str) -> None:
    node, pool = NOT_LOST[case]
    assert handle_edits(node, pool) is None


def test_a_stripped_node_with_the_right_label_starts_over() -> None:
    stripped, pool_view = NOT_LOST["removed, no record, and the driver label is right"]
    outcome = candidate_of(step_at_rest(stripped, pool_view))
    assert (outcome.operation, outcome.label) == (Operation.VALIDATE, label_of(NEW))
    at_gate = replace(stripped, driver_pods=(driver_pod(started=None),), loaded=None)
    assert candidate_of(step_at_rest(at_gate, pool_view)).operation is Operation.BRING_UP


# Requests of a person.


def requesting(case: str, request: NodeRequest) -> NodeView:
    result, _ = LOST[case]
    owners = {**result.field_managers, NodeField.REQUEST: (PERSON,)}
    return replace(
        result, request=request, field_managers=owners, last_managers={NodeField.REQUEST: PERSON}
    )


def answer(node: NodeView, pool_view: PoolView) -> tuple[NodeApplyConfiguration, Notice, NodeView]:
    step = step_of(handle_edits(node, pool_view))
    write, sent = step.actions
    assert isinstance(write, WriteNode)
    assert isinstance(sent, Notice)
    assert write.applied.cleared[0] == REQUEST_ANNOTATION
    assert (sent.kind, sent.field, sent.manager) == (NoticeKind.REQUEST, "request", PERSON)
    later = apply_step(node, step)
    assert later.request is None
    return write.applied, sent, later


ADOPTED = {
    "gone, done": ("upgrade-done", False),
    "garbled, done": ("upgrade-done", False),
    "rewritten by a person": ("upgrade-done", False),
    "gone, failed": ("upgrade-failed", True),
    "gone, stamped": ("upgrade-required", False),
    "gone, in flight": ("upgrade-required", False),
    "the lease is gone": ("upgrade-required", False),
    "the lease is garbled": ("upgrade-required", True),
}


@pytest.mark.parametrize("case", ADOPTED)
def test_adoption_follows_the_labels_with_nothing_proven(case: str) -> None:
    state, started = ADOPTED[case]
    node = requesting(case, NodeRequest.ADOPT)
    pool_view = LOST[case][1]
    applied, _, later = answer(node, pool_view)
    written = applied.record
    assert written is not None
    assert (written.state, written.started, written.evidence) == (state, started, None)
    assert (written.node_uid, written.pool, written.label) == (node.uid, POOL, node.driver_label)
    assert written.token >= TOKEN
    assert applied.driver_label == node.driver_label
    assert applied.lease is None
    assert applied.unschedulable is (True if node.cordoned else None)
    assert later.cordoned is node.cordoned
    assert handle_edits(later, pool_view) is None


@pytest.mark.parametrize("known_to", ["record", "lease", "agent", "slot", "constraints", "Rollout"])
def test_adoption_continues_from_the_highest_known_token(known_to: str) -> None:
    result, pool_view, high = (
        requesting("the lease is garbled", NodeRequest.ADOPT),
        pool(),
        TOKEN + 30,
    )
    assert isinstance(result.record, NodeRecord)
    flight = InFlight(node=result.name, token=high, target=NEW, since=NOW)
    match known_to:
        case "record":
            result = replace(result, record=replace(result.record, token=high))
        case "lease":
            result = replace(result, record=None, lease=lease(token=high))
        case "agent":
            result = replace(result, components={"driver": component(highest_order=Order(high, 1))})
        case "slot":
            result = with_token(result, high)
        case "constraints":
            pool_view = granted(pool_view, result, token=high)
        case _:
            pool_view = pool(status={"in_flight": {result.uid: flight}})
    applied, _, _ = answer(result, pool_view)
    assert applied.record is not None
    assert applied.record.token == high


def test_a_node_adopted_as_done_is_validated() -> None:
    node = requesting("garbled, done", NodeRequest.ADOPT)
    _, _, later = answer(node, pool())
    quiet = step_of(step_at_rest(later))
    outcome = candidate_of(step_at_rest(apply_step(later, quiet)))
    assert outcome.operation is Operation.VALIDATE


def start_of(view: NodeView) -> Candidate:
    """Return the start of a node at rest, after the steps that come before it."""
    outcome = step_at_rest(view)
    while isinstance(outcome, Step):
        view = apply_step(view, outcome)
        outcome = step_at_rest(view)
    return candidate_of(outcome)


@pytest.mark.parametrize("writer", [MANAGER, PERSON])
@pytest.mark.parametrize(
    "state",
    [
        "upgrade-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
        "upgrade-failed",
        "upgrade-done",
    ],
)
def test_an_adopted_node_counts_in_bounded_harm_whatever_its_state_label(
    state: str, writer: str
) -> None:
    """Only a record shows that a node failed on an earlier target."""
    lost = no_record(done(target=OLD, state=state))
    owners = {**lost.field_managers, NodeField.STATE: (writer,)}
    _, _, adopted = answer(
        with_request(replace(lost, field_managers=owners), NodeRequest.ADOPT), pool()
    )
    start = start_of(adopted)
    assert (start.operation, start.target, start.outside) == (Operation.UPGRADE, NEW, False)


def test_adoption_finds_the_target_of_the_label() -> None:
    applied, _, _ = answer(requesting("gone, done", NodeRequest.ADOPT), pool())
    assert applied.record is not None
    assert applied.record.target == OLD


def test_forget_keeps_a_wanted_label_and_our_cordon() -> None:
    case = "the lease is garbled"
    applied, sent, later = answer(requesting(case, NodeRequest.FORGET), pool())
    assert applied == NodeApplyConfiguration(
        driver_label=label_of(NEW), unschedulable=True, cleared=(REQUEST_ANNOTATION,)
    )
    assert "driver label" not in sent.message
    assert later.cordoned
    assert handle_edits(later) is None


@pytest.mark.parametrize("request_", [NodeRequest.ADOPT, NodeRequest.FORGET])
def test_adopt_and_forget_remove_fields_that_others_overwrote(request_: NodeRequest) -> None:
    """A field left out of an apply would stay for ever."""
    case = "garbled by a person, with the state removed"
    result = requesting(case, request_)
    result = replace(
        result,
        state="nonsense",
        lease=MalformedAnnotation("{"),
        field_managers={
            **result.field_managers,
            NodeField.STATE: (PERSON,),
            NodeField.LEASE: (PERSON,),
        },
    )
    _, _, later = answer(result, pool())
    assert later.lease is None
    assert not isinstance(later.record, MalformedAnnotation)
    assert later.state == ("upgrade-required" if request_ is NodeRequest.ADOPT else "")
    assert handle_edits(later) is None


def test_forget_drops_a_label_that_is_not_wanted() -> None:
    applied, sent, later = answer(requesting("gone, done", NodeRequest.FORGET), pool())
    assert applied == NodeApplyConfiguration(cleared=(REQUEST_ANNOTATION,))
    assert "driver label" in sent.message
    assert handle_edits(later) is None
    assert candidate_of(step_at_rest(later)).operation is Operation.TAKE_OVER


def test_a_state_beside_the_record_of_an_earlier_node_is_void() -> None:
    stored = record(node_uid="uid-of-earlier")
    assert handle_edits(node(record=stored, state="upgrade-done")) is None


def loss_reason(view: NodeView) -> str:
    outcome = handle_edits(view)
    return outcome.detail if isinstance(outcome, Wait) and outcome.code == "record-lost" else ""


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (no_record(done()), "record"),
        (done(record=MalformedAnnotation("not JSON")), ": not JSON"),
        (node(state="upgrade-done", field_managers={NodeField.STATE: (MANAGER,)}), "record"),
        (node(field_managers={NodeField.STATE: (MANAGER,)}), ""),
        (node(field_managers={NodeField.DRIVER: (MANAGER,)}), ""),
        (
            node(lease=MalformedAnnotation("{"), field_managers={NodeField.LEASE: (MANAGER,)}),
            "record",
        ),
        (
            node(record=MalformedAnnotation("{"), field_managers={NodeField.RECORD: (MANAGER,)}),
            ": {",
        ),
        (node(lease=MalformedAnnotation("{"), field_managers={NodeField.LEASE: (PERSON,)}), ""),
        (node(lease=lease(node_uid="another"), field_managers={NodeField.LEASE: (MANAGER,)}), ""),
        (
            required(
                field_managers={**required().field_managers, NodeField.RECORD: (MANAGER, PERSON)}
            ),
            "",
        ),
    ],
)
def test_what_shows_that_a_record_was_lost(view: NodeView, why: str) -> None:
    reason = loss_reason(view)
    assert why in reason
    assert bool(reason) is bool(why)


def test_the_record_of_an_earlier_node_is_not_a_lost_record() -> None:
    assert loss_reason(replace(required(), uid="uid-new")) == ""


@pytest.mark.parametrize(
    ("highest", "slot", "uid", "begun"),
    [
        (TOKEN, 0, "uid-node-1", True),
        (TOKEN - 1, 0, "uid-node-1", False),
        (0, TOKEN, "uid-node-1", True),
        (0, TOKEN - 1, "uid-node-1", False),
        (0, TOKEN, "another", False),
    ],
)
def test_a_report_or_slot_with_the_granted_token_shows_a_lost_record(
    highest: int, slot: int, uid: str, *, begun: bool
) -> None:
    order = (slot, 1)
    slot_command = replace(command(Idle(), order=order), node_uid=uid) if slot else None
    part = component(slot_command, highest_order=Order(highest, 1))
    view = node(components={"driver": part})
    outcome = handle_edits(view, granted(pool(), view, token=TOKEN))
    assert isinstance(outcome, Wait) is begun


def test_tokens_of_an_earlier_node_do_not_count() -> None:
    part = component(command(Idle(), order=(TOKEN, 1)), highest_order=Order(0, 0))
    view = done(components={"driver": part})
    assert highest_token(node_case(view)) == TOKEN
    assert highest_token(node_case(replace(view, uid="uid-new"))) == 0


@pytest.mark.parametrize(
    ("state", "expected"), [("upgrade-done", "upgrade-done"), ("", "no state")]
)
def test_adoption_keeps_the_state_label_as_the_cause(state: str, expected: str) -> None:
    view = with_request(no_record(failed(target=OLD, state=state)), NodeRequest.ADOPT)
    assert applied_by(view).record.cause.startswith("adopted by somebody with kubectl in ")
    assert applied_by(view).record.cause.endswith(expected)


def applied_by(view: NodeView) -> Any:
    step = step_of(handle_edits(view))
    (write,) = (action for action in step.actions if isinstance(action, WriteNode))
    return write.applied
