"""What may happen next to a pool: somebody looks, a write takes effect, a node ends, a person acts.

Each write of a decision takes effect on its own, at any later moment, if what it was decided on
still stands; else it is lost. Must not know which moments were reached before.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation
from libs.contracts.rollout import InFlight, Release, RolloutSpec
from libs.rollout.decide import decide
from libs.rollout.decision import AskPreflight, Decision, Step, WriteNode, WriteRollout, WriteSlot
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.reconcile.contribution import UNBEGUN_SECONDS
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from tests.component.rollout.exploration.harm.model import (
    ModelState,
    PendingWrite,
    answer_commands,
    checked,
    finish_failed,
    finish_released,
    finish_validated,
    newcomer,
    recover_driver,
    with_step_applied,
)
from tests.component.rollout.exploration.harm.oracle import HarmBoundExceeded
from tests.unit.rollout.builders import NOW, POOL

Move = tuple[str, ModelState]

_HARMLESS = frozenset({Operation.VALIDATE, Operation.REMOVE})


def fleet(moment: ModelState) -> Fleet:
    """As the engine sees it."""
    nodes = {
        name: replace(node, write_pending=True) if name in moment.writes else node
        for name, node in moment.nodes.items()
    }
    rollout = replace(moment.view, write_pending=moment.rollout is not None)
    return Fleet(pools={POOL: replace(moment.pool, rollout=rollout)}, nodes=nodes)


def decide_now(moment: ModelState) -> tuple[ModelState, Decision]:
    """What is decided now, when everybody who is asked has answered and wishes are stamped."""
    for _ in range(20):
        decision = decide(fleet(moment), moment.now)
        before = moment
        for name, step in decision.steps.items():
            node = moment.nodes[name]
            asked = [one for one in step.actions if isinstance(one, AskPreflight)]
            orders = [one for one in step.actions if isinstance(one, WriteSlot)]
            if asked:
                preflight = checked(node, "A").preflight
                assert preflight is not None
                made = replace(node, preflight=replace(preflight, label=asked[0].check.label))
                moment = moment.with_node(made)
            elif _writes(step):
                if not _begins(node, step):
                    moment = moment.with_node(with_step_applied(node, step))
            elif orders and not under_change(node):
                moment = moment.with_node(answer_commands(node, orders))
        if moment is before:
            return moment, decision
    raise HarmBoundExceeded("the scheduler writes and writes, and nothing comes of it")


def under_change(node: NodeView) -> bool:
    """Whether it has started: then its machine alone says what comes of it."""
    record = node.record
    if node.lease is None or not isinstance(record, NodeRecord):
        return False
    return record.started or record.operation is Operation.VALIDATE


def _writes(step: Step) -> bool:
    return any(isinstance(action, WriteNode) for action in step.actions)


def fits(node: NodeView, step: Step) -> bool:
    """Whether the node is still the one on which it was decided."""
    return any(
        isinstance(one, WriteNode) and (one.uid, one.revision) == (node.uid, node.revision)
        for one in step.actions
    )


def _begins(node: NodeView, step: Step) -> bool:
    """Whether a lease is given, kept or ended by it: then it counts when it takes effect."""
    (applied,) = [one.applied for one in step.actions if isinstance(one, WriteNode)]
    return node.lease is not None or applied.lease is not None


def moves(moment: ModelState) -> Iterator[Move]:
    """All of them."""
    decided = list(_scheduler(moment))
    yield from decided
    if not (decided or moment.writes or moment.rollout):
        yield from _time(moment)
    yield from _effects(moment)
    yield from _machines(moment)
    yield from _people(moment)


def _scheduler(moment: ModelState) -> Iterator[Move]:
    after, decision = decide_now(moment)
    halted = moment.truth.halted
    fresh = {
        name: PendingWrite(step=step, halted=halted)
        for name, step in decision.steps.items()
        if _writes(step)
    }
    rollout = decision.rollouts[0] if decision.rollouts else None
    if moment.rollout is not None:
        rollout = moment.rollout
    elif rollout is not None:
        after = replace(after, halted=halted)
    if fresh or rollout is not moment.rollout or after.nodes is not moment.nodes:
        yield (
            "the scheduler decides",
            replace(
                after,
                writes={**moment.writes, **fresh},
                rollout=rollout,
                looks=moment.looks + 1,
            ),
        )


def _time(moment: ModelState) -> Iterator[Move]:
    """A minute later, where somebody has a place and does not begin."""
    begun = {node.uid for node in moment.nodes.values() if node.lease is not None}
    places = moment.status.in_flight
    kept = {
        uid: replace(place, since=NOW - UNBEGUN_SECONDS)
        for uid, place in places.items()
        if uid not in begun and place.since > NOW - UNBEGUN_SECONDS
    }
    if kept:
        status = replace(moment.status, in_flight={**places, **kept})
        yield "a minute passes", moment.with_rollout(status=status)


def _effects(moment: ModelState) -> Iterator[Move]:
    for name, write in moment.writes.items():
        rest = {one: other for one, other in moment.writes.items() if one != name}
        without = replace(moment, writes=rest)
        node = moment.nodes.get(name)
        if node is None or not fits(node, write.step):
            yield f"refused on {name}: {write.step.because}", without
            continue
        made = without.with_node(with_step_applied(node, write.step))
        _started(node, made.nodes[name], write, moment)
        _grew(moment, made)
        yield f"on {name}: {write.step.because}", made
        if "a write is lost" in moment.left:
            yield (
                f"lost on {name}: {write.step.because}",
                without_disturbance(without, "a write is lost"),
            )
    if moment.rollout is not None:
        yield from _rollout(moment)


def _rollout(moment: ModelState) -> Iterator[Move]:
    write = moment.rollout
    assert write is not None
    without = replace(moment, rollout=None)
    if write.revision != moment.view.revision:
        yield "refused: the Rollout is another", without
        return
    made = without.with_rollout(status=write.status)
    for uid, entry in write.status.in_flight.items():
        if entry.target in moment.halted and _is_granted(moment, write, uid, entry):
            raise HarmBoundExceeded(f"{entry.node} is granted for {entry.target}, which is halted")
    truth = moment.truth
    for target, record in write.status.targets.items():
        if target not in truth.books:
            truth = truth.begun(target, record.threshold, record.accepted)
        elif record.threshold != truth.books[target].threshold:
            raise HarmBoundExceeded(f"T of {target} is {record.threshold} now")
    for target in truth.books.keys() - write.status.targets.keys():
        truth = truth.forgotten(target)
    made = replace(made, truth=truth)
    _grew(moment, made)
    yield f"the Rollout: {write.because}", made
    if "a write is lost" in moment.left:
        yield f"lost: the Rollout: {write.because}", without_disturbance(without, "a write is lost")


def _is_granted(moment: ModelState, write: WriteRollout, uid: str, entry: InFlight) -> bool:
    """Whether the place is new, or for another target; not if it is put back for who has begun."""
    had = moment.status.in_flight.get(uid)
    moved = had is not None and had.target != entry.target and entry.target != _begun(moment, uid)
    return not entry.validates and (entry.node in write.granted or moved)


def _begun(moment: ModelState, uid: str) -> str:
    """The target that is written on the node."""
    records = [node.record for node in moment.nodes.values() if node.uid == uid]
    return records[0].target if records and isinstance(records[0], NodeRecord) else ""


def without_disturbance(moment: ModelState, what: str) -> ModelState:
    """It does not come again."""
    left = list(moment.left)
    left.remove(what)
    return replace(moment, left=tuple(left))


def in_flight_uids(moment: ModelState, target: str) -> set[str]:
    """Uids in flight to a target: by their place, or by what is written on the node."""
    found = {
        uid
        for uid, entry in moment.status.in_flight.items()
        if entry.target == target and not (entry.outside or entry.validates)
    }
    for node in moment.nodes.values():
        record = node.record
        if not isinstance(record, NodeRecord) or node.lease is None or record.target != target:
            continue
        if not (record.outside or record.operation in _HARMLESS):
            found.add(node.uid)
    return found


def _grew(before: ModelState, after: ModelState) -> None:
    for target in after.truth.books:
        after.truth.grew(target, in_flight_uids(before, target), in_flight_uids(after, target))


def _started(before: NodeView, after: NodeView, write: PendingWrite, moment: ModelState) -> None:
    record, had = after.record, before.record
    if not isinstance(record, NodeRecord) or not record.started or record.operation in _HARMLESS:
        return
    already = isinstance(had, NodeRecord) and had.started and had.token == record.token
    if not already and record.target in write.halted:
        raise HarmBoundExceeded(f"{after.name} is started on {record.target}, which is halted")


def past_the_start(moment: ModelState, target: str, but: str) -> int:
    """Nodes that have started on a target, or whose start is on its way."""
    count = 0
    for name, node in moment.nodes.items():
        if name == but:
            continue
        views = [node]
        if name in moment.writes and fits(node, moment.writes[name].step):
            views.append(with_step_applied(node, moment.writes[name].step))
        count += any(
            isinstance(one.record, NodeRecord)
            and one.lease is not None
            and one.record.started
            and one.record.target == target
            for one in views
        )
    return count


def _machines(moment: ModelState) -> Iterator[Move]:
    for name, node in moment.nodes.items():
        record, lease = node.record, upgrade_lease(node)
        if not isinstance(record, NodeRecord):
            continue
        if lease is None:
            failed = record.unproven and record.started and not node.driver_pods
            if (
                failed
                and "a failed driver comes up" in moment.left
                and node.state.endswith("failed")
            ):
                yield (
                    f"{name} comes up",
                    without_disturbance(
                        moment.with_node(recover_driver(node)), "a failed driver comes up"
                    ),
                )
            continue
        if record.started or record.operation is Operation.VALIDATE:
            yield from _ends(moment, node, record)
        elif "pods do not leave" in moment.left:
            made = moment.with_node(finish_released(node))
            yield f"{name} is given back unchanged", without_disturbance(made, "pods do not leave")


def _ends(moment: ModelState, node: NodeView, record: NodeRecord) -> Iterator[Move]:
    name, uid, target = node.name, node.uid, record.target
    truth = moment.truth
    if record.operation is Operation.REMOVE:
        yield f"{name} is rid of its driver", moment.with_node(finish_validated(node))
        return
    again = record.operation is Operation.VALIDATE
    well = truth.well(uid, target, outside=record.outside)
    yield f"{name} is validated on {target}", moment.with_node(finish_validated(node), truth=well)
    if target == "A":
        return  # it has always worked
    worse = truth if again else truth.failing(uid, target, past_the_start(moment, target, name))
    yield f"{name} fails on {target}", moment.with_node(finish_failed(node), truth=worse)


def _people(moment: ModelState) -> Iterator[Move]:
    if moment.wishes:
        target, *rest = moment.wishes
        made = replace(moment, pool=replace(moment.pool, target=target), wishes=tuple(rest))
        nodes = {name: checked(node, target) for name, node in moment.nodes.items()}
        yield f"--- {target} is wanted", replace(made, nodes=nodes)
    for what in dict.fromkeys(moment.left):
        done = without_disturbance(moment, what)
        match what.split():
            case ["release", target]:
                yield from _released(done, target)
            case ["a", "node", "is", "deleted"]:
                for name in moment.nodes:
                    yield f"--- {name} is deleted", _deleted(done, name)
            case ["a", "node", "leaves", "the", "pool"]:
                for name, node in moment.nodes.items():
                    if node.pool:
                        made = replace(node, pool="", revision=f"{int(node.revision) + 1}")
                        yield f"--- {name} leaves the pool", done.with_node(made)
            case ["a", "node", "joins"]:
                name = f"j{len(moment.left)}"
                yield "--- a node joins", done.with_node(newcomer(name, moment.pool.target))
            case _:
                pass


def _released(moment: ModelState, target: str) -> Iterator[Move]:
    """He accepts what has failed, if anything has."""
    book = moment.truth.books.get(target)
    if book is None or not book.failed:
        return
    accepted = len(book.failed)
    ending = frozenset(moment.status.in_flight)
    truth = moment.truth.released(target, accepted, ending)
    spec = RolloutSpec(release=Release(target=target, failures=accepted))
    yield (
        f"--- {accepted} failures of {target} are accepted",
        replace(moment.with_rollout(spec=spec), truth=truth),
    )


def _deleted(moment: ModelState, name: str) -> ModelState:
    """A failure that no Rollout has yet goes with its Node: the place in flight returns."""
    uid = moment.nodes[name].uid
    nodes = {one: node for one, node in moment.nodes.items() if one != name}
    known = {target for target, one in moment.status.targets.items() if uid in one.failed}
    return replace(moment, nodes=nodes, truth=moment.truth.lost(uid, known))
