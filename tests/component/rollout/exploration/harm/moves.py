"""What may happen next to a pool: a decision, a write takes effect, an upgrade ends, a user acts.

Each write of a decision takes effect on its own, at any later moment, if its object has not changed
since; otherwise it is refused.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation
from libs.contracts.rollout import InFlight, Release, RolloutSpec
from libs.rollout.decide import decide
from libs.rollout.decision import AskPreflight, Decision, Step, WriteNode, WriteRollout, WriteSlot
from libs.rollout.pool.contribution import UNBEGUN_SECONDS
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from tests.component.rollout.exploration.harm.model import (
    ModelState,
    PendingWrite,
    checked,
    finish_failed,
    finish_released,
    finish_validated,
    new_node,
    recover_driver,
    with_commands_done,
    with_step_applied,
)
from tests.component.rollout.exploration.harm.oracle import HarmBoundExceeded
from tests.unit.rollout.builders import NOW, POOL

Move = tuple[str, ModelState]
"""What happens, and the state after it; events of users begin with dashes."""

_HARMLESS = frozenset({Operation.VALIDATE, Operation.REMOVE})


def moves(state: ModelState) -> Iterator[Move]:
    decisions = list(_decisions(state))
    yield from decisions
    if not (decisions or state.writes or state.rollout_write):
        yield from _time(state)
    yield from _node_writes(state)
    if state.rollout_write is not None:
        yield from _rollout_write(state, state.rollout_write)
    yield from _ends(state)
    yield from _events(state)


def without_event(state: ModelState, event: str) -> ModelState:
    events = list(state.events)
    events.remove(event)
    return replace(state, events=tuple(events))


# Decisions.


def fleet(state: ModelState) -> Fleet:
    """Return the fleet as the engine sees it."""
    nodes = {
        name: replace(node, write_pending=True) if name in state.writes else node
        for name, node in state.nodes.items()
    }
    rollout = replace(state.view, write_pending=state.rollout_write is not None)
    return Fleet(pools={POOL: replace(state.pool, rollout=rollout)}, nodes=nodes)


def decide_now(state: ModelState) -> tuple[ModelState, Decision]:
    """Return the decision after preflights, commands and writes without a lease took effect."""
    for _ in range(20):
        decision = decide(fleet(state), state.now)
        before = state
        for name, step in decision.steps.items():
            state = _with_harmless_effects(state, state.nodes[name], step)
        if state is before:
            return state, decision
    raise HarmBoundExceeded("the decisions of the scheduler do not settle after 20 rounds")


def _with_harmless_effects(state: ModelState, node: NodeView, step: Step) -> ModelState:
    queries = [action for action in step.actions if isinstance(action, AskPreflight)]
    commands = [action for action in step.actions if isinstance(action, WriteSlot)]
    if queries:
        preflight = checked(node, "A").preflight
        assert preflight is not None
        passed = replace(preflight, label=queries[0].check.label)
        return state.with_node(replace(node, preflight=passed))
    if _writes_node(step):
        harmful = _concerns_lease(node, step)
        return state if harmful else state.with_node(with_step_applied(node, step))
    if commands and not _is_under_change(node):
        return state.with_node(with_commands_done(node, commands))
    return state


def _is_under_change(node: NodeView) -> bool:
    """Whether the node has started: from then on `_ends` decides how its machine behaves."""
    record = node.record
    if node.lease is None or not isinstance(record, NodeRecord):
        return False
    return record.started or record.operation is Operation.VALIDATE


def _writes_node(step: Step) -> bool:
    return any(isinstance(action, WriteNode) for action in step.actions)


def fits(node: NodeView, step: Step) -> bool:
    """Whether the node is unchanged since the decision."""
    return any(
        isinstance(action, WriteNode) and (action.uid, action.revision) == (node.uid, node.revision)
        for action in step.actions
    )


def _concerns_lease(node: NodeView, step: Step) -> bool:
    """Whether the step takes, keeps or ends a lease: then the time of its effect matters."""
    (applied,) = [action.applied for action in step.actions if isinstance(action, WriteNode)]
    return node.lease is not None or applied.lease is not None


def _decisions(state: ModelState) -> Iterator[Move]:
    after, decision = decide_now(state)
    halted = state.oracle.halted
    writes = {
        name: PendingWrite(step=step, halted=halted)
        for name, step in decision.steps.items()
        if _writes_node(step)
    }
    rollout_write = decision.rollouts[0] if decision.rollouts else None
    if state.rollout_write is not None:
        rollout_write = state.rollout_write
    elif rollout_write is not None:
        after = replace(after, halted=halted)
    if writes or rollout_write is not state.rollout_write or after.nodes is not state.nodes:
        yield (
            "the scheduler decides",
            replace(
                after,
                writes={**state.writes, **writes},
                rollout_write=rollout_write,
                decisions=state.decisions + 1,
            ),
        )


def _time(state: ModelState) -> Iterator[Move]:
    """Let a grant expire that its node has not begun."""
    begun = {node.uid for node in state.nodes.values() if node.lease is not None}
    in_flight = state.status.in_flight
    expired = {
        uid: replace(entry, since=NOW - UNBEGUN_SECONDS)
        for uid, entry in in_flight.items()
        if uid not in begun and entry.since > NOW - UNBEGUN_SECONDS
    }
    if expired:
        status = replace(state.status, in_flight={**in_flight, **expired})
        yield "a minute passes", state.with_rollout(status=status)


# Effects of writes.


def _node_writes(state: ModelState) -> Iterator[Move]:
    for name, write in state.writes.items():
        remaining = {
            other_name: other_write
            for other_name, other_write in state.writes.items()
            if other_name != name
        }
        dropped = replace(state, writes=remaining)
        node = state.nodes.get(name)
        if node is None or not fits(node, write.step):
            yield f"refused on {name}: {write.step.because}", dropped
            continue
        after = dropped.with_node(with_step_applied(node, write.step))
        _check_start(node, after.nodes[name], write)
        _check_growth(state, after)
        yield f"on {name}: {write.step.because}", after
        if "a write is lost" in state.events:
            lost = without_event(dropped, "a write is lost")
            yield f"lost on {name}: {write.step.because}", lost


def _rollout_write(state: ModelState, write: WriteRollout) -> Iterator[Move]:
    dropped = replace(state, rollout_write=None)
    if write.revision != state.view.revision:
        yield "refused: the Rollout has changed", dropped
        return
    for uid, entry in write.status.in_flight.items():
        if entry.target in state.halted and _is_granted(state, write, uid, entry):
            raise HarmBoundExceeded(f"{entry.node} is granted for {entry.target}, which is halted")
    oracle = state.oracle
    for target, record in write.status.targets.items():
        if target not in oracle.targets:
            oracle = oracle.with_target(target, record.threshold, record.accepted)
        elif record.threshold != oracle.targets[target].threshold:
            raise HarmBoundExceeded(f"the threshold of {target} changed to {record.threshold}")
    for target in oracle.targets.keys() - write.status.targets.keys():
        oracle = oracle.without_target(target)
    after = replace(dropped.with_rollout(status=write.status), oracle=oracle)
    _check_growth(state, after)
    yield f"the Rollout: {write.because}", after
    if "a write is lost" in state.events:
        yield f"lost: the Rollout: {write.because}", without_event(dropped, "a write is lost")


def _check_start(before: NodeView, after: NodeView, write: PendingWrite) -> None:
    record, record_before = after.record, before.record
    if not isinstance(record, NodeRecord) or not record.started or record.operation in _HARMLESS:
        return
    already_started = (
        isinstance(record_before, NodeRecord)
        and record_before.started
        and record_before.token == record.token
    )
    if not already_started and record.target in write.halted:
        raise HarmBoundExceeded(f"{after.name} is started on {record.target}, which is halted")


def _is_granted(state: ModelState, write: WriteRollout, uid: str, entry: InFlight) -> bool:
    """Whether the entry is new or changes its target, other than to what the node has begun."""
    current = state.status.in_flight.get(uid)
    retargeted = (
        current is not None
        and current.target != entry.target
        and entry.target != _begun(state, uid)
    )
    return not entry.validates and (entry.node in write.granted or retargeted)


def _begun(state: ModelState, uid: str) -> str:
    """Return the target that is written on the node."""
    records = [node.record for node in state.nodes.values() if node.uid == uid]
    return records[0].target if records and isinstance(records[0], NodeRecord) else ""


def _check_growth(before: ModelState, after: ModelState) -> None:
    for target in after.oracle.targets:
        uids, new_uids = in_flight_uids(before, target), in_flight_uids(after, target)
        after.oracle.check_growth(target, uids, new_uids)


def in_flight_uids(state: ModelState, target: str) -> set[str]:
    """Return the nodes in flight to a target, by the Rollout or by what is written on the node."""
    uids = {
        uid
        for uid, entry in state.status.in_flight.items()
        if entry.target == target and not (entry.outside or entry.validates)
    }
    for node in state.nodes.values():
        record = node.record
        if not isinstance(record, NodeRecord) or node.lease is None or record.target != target:
            continue
        if not (record.outside or record.operation in _HARMLESS):
            uids.add(node.uid)
    return uids


# Ends of upgrades.


def _ends(state: ModelState) -> Iterator[Move]:
    for name, node in state.nodes.items():
        record, lease = node.record, node.upgrade_lease
        if not isinstance(record, NodeRecord):
            continue
        if lease is None:
            event = "a failed driver comes up"
            failed = record.unproven and record.started and not node.driver_pods
            if failed and event in state.events and node.state.endswith("failed"):
                after = state.with_node(recover_driver(node))
                yield f"{name} comes up", without_event(after, event)
        elif record.started or record.operation is Operation.VALIDATE:
            yield from _ends_of(state, node, record)
        elif "pods do not leave" in state.events:
            after = state.with_node(finish_released(node))
            yield f"{name} is given back unchanged", without_event(after, "pods do not leave")


def _ends_of(state: ModelState, node: NodeView, record: NodeRecord) -> Iterator[Move]:
    name, uid, target, oracle = node.name, node.uid, record.target, state.oracle
    if record.operation is Operation.REMOVE:
        yield f"the driver of {name} is removed", state.with_node(finish_validated(node))
        return
    validated = oracle.with_validation(uid, target, outside=record.outside)
    after = state.with_node(finish_validated(node), oracle=validated)
    yield f"{name} is validated on {target}", after
    if target == "A":
        return  # A always works.
    if record.operation is not Operation.VALIDATE:
        oracle = oracle.with_failure(uid, target, _started_on(state, target, except_for=name))
    yield f"{name} fails on {target}", state.with_node(finish_failed(node), oracle=oracle)


def _started_on(state: ModelState, target: str, *, except_for: str) -> int:
    """Count the nodes that have started on a target or whose start is pending."""
    count = 0
    for name, node in state.nodes.items():
        if name == except_for:
            continue
        views = [node]
        if name in state.writes and fits(node, state.writes[name].step):
            views.append(with_step_applied(node, state.writes[name].step))
        count += any(
            isinstance(view.record, NodeRecord)
            and view.lease is not None
            and view.record.started
            and view.record.target == target
            for view in views
        )
    return count


# Events.


def _events(state: ModelState) -> Iterator[Move]:
    if state.next_targets:
        target, *rest = state.next_targets
        after = replace(state, pool=replace(state.pool, target=target), next_targets=tuple(rest))
        nodes = {name: checked(node, target) for name, node in state.nodes.items()}
        yield f"--- the policy wants {target}", replace(after, nodes=nodes)
    for event in dict.fromkeys(state.events):
        after = without_event(state, event)
        match event.split():
            case ["release", target]:
                yield from _release(after, target)
            case ["a", "node", "is", "deleted"]:
                for name in state.nodes:
                    yield f"--- {name} is deleted", _without_node(after, name)
            case ["a", "node", "leaves", "the", "pool"]:
                for name, node in state.nodes.items():
                    if node.pool:
                        left = replace(node, pool="", revision=f"{int(node.revision) + 1}")
                        yield f"--- {name} leaves the pool", after.with_node(left)
            case ["a", "node", "joins"]:
                name = f"j{len(state.events)}"
                yield "--- a node joins", after.with_node(new_node(name, state.pool.target))
            case _:
                pass


def _release(state: ModelState, target: str) -> Iterator[Move]:
    """Accept the failures of a target, if it has any."""
    harm = state.oracle.targets.get(target)
    if harm is None or not harm.failed:
        return
    accepted = len(harm.failed)
    in_flight = frozenset(state.status.in_flight)
    oracle = state.oracle.with_release(target, accepted, in_flight)
    spec = RolloutSpec(release=Release(target=target, failures=accepted))
    yield (
        f"--- {accepted} failures of {target} are accepted",
        replace(state.with_rollout(spec=spec), oracle=oracle),
    )


def _without_node(state: ModelState, name: str) -> ModelState:
    """Delete a node: a failure that the Rollout does not list yet is forgotten with it."""
    uid = state.nodes[name].uid
    nodes = {other_name: node for other_name, node in state.nodes.items() if other_name != name}
    known = {
        target for target, other_name in state.status.targets.items() if uid in other_name.failed
    }
    return replace(state, nodes=nodes, oracle=state.oracle.without_node(uid, known))
