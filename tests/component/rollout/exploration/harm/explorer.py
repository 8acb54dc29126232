"""Every moment that a small pool can reach, and whether harm stayed within its bounds in each.

Nodes that are in the same situation are the same node: only one of them is followed. Where nothing
is on its way any more, everybody has to be in place or to have a reason that is true.
"""

from collections import deque
from collections.abc import Hashable

import msgspec

from libs.contracts.node import NodeRecord
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Decision
from libs.rollout.views.node import NodeView
from tests.component.rollout.exploration.harm.model import ModelSetup, ModelState, initial_state
from tests.component.rollout.exploration.harm.moves import decide_now, fits, fleet, moves
from tests.component.rollout.exploration.harm.oracle import HarmBoundExceeded
from tests.component.rollout.simulation import checks

Key = int


class HarmExploration(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    states: int
    rests: int
    """Moments in which nothing is on its way."""
    halts: int
    """Moments in which some target is halted."""
    proofs: int
    """Moments in which some target is proven."""
    whole: bool
    """Nothing was left to be explored."""
    wrong: str = ""
    """The first thing that is wrong, and how it came about."""


class _Trace(msgspec.Struct, frozen=True):
    move: str
    before: "_Trace | None" = None

    def as_text(self) -> str:
        moves: list[str] = []
        here: _Trace | None = self
        while here is not None:
            moves.append(here.move)
            here = here.before
        return "\n".join(reversed(moves))


def explore(terms: ModelSetup, *, most: int) -> HarmExploration:
    """All of them, breadth first, up to so many: the first story that goes wrong is a shortest."""
    first = initial_state(terms)
    waiting = deque([(first, _Trace(terms.name))])
    known: set[Key] = {state_key(first)}
    rests = halts = proofs = 0
    wrong = ""
    while waiting and len(known) < most and not wrong:
        moment, trace = waiting.popleft()
        halts += bool(moment.truth.halted)
        proofs += any(book.proven for book in moment.truth.books.values())
        told = "?"
        try:
            ways = moves(moment)
            found = 0
            for told, after in ways:
                found += not told.startswith("---")
                here = state_key(after)
                if here not in known:
                    known.add(here)
                    waiting.append((after, _Trace(told, trace)))
            if not found:
                rests += 1
                _rests(moment)
        except (HarmBoundExceeded, checks.SimulationFailure) as found_wrong:
            wrong = f"{found_wrong}\n{trace.as_text()}\n(and then, after looking at: {told})"
    return HarmExploration(
        states=len(known),
        rests=rests,
        halts=halts,
        proofs=proofs,
        whole=not waiting and not wrong,
        wrong=wrong,
    )


# Where nothing is on its way.


def _rests(moment: ModelState) -> None:
    _, decision = decide_now(moment)
    checks.check_decision(fleet(moment), moment.now, decision)
    for name, wait in decision.waits.items():
        said = f"{name} waits for {wait.code} ({wait.detail}) for ever"
        if wait.code is WaitCode.BUDGET and _taken(moment, decision):
            continue
        if wait.code in checks.TRANSIENT_CODES:
            raise HarmBoundExceeded(said)


def _taken(moment: ModelState, decision: Decision) -> bool:
    """Whether nodes that a person has to look after take up the budget."""
    return any(account.unavailable for account in decision.budgets.values())


# When two moments are the same.


def state_key(moment: ModelState) -> Key:
    """The same for two moments from which the same can follow, whatever nodes are called."""
    coming = moment.rollout.status if moment.rollout is not None else None
    ranks = _ranks(moment.status)
    nodes = sorted((_of(moment, node, coming, ranks) for node in moment.nodes.values()), key=repr)
    there = {node.uid for node in moment.nodes.values()}
    uids = {
        *moment.status.in_flight,
        *(coming.in_flight if coming is not None else ()),
        *moment.truth.sick,
        *(uid for one in moment.status.targets.values() for uid in (*one.failed, *one.validated)),
        *(uid for one in moment.truth.books.values() for uid in one.failed | one.validated),
    } - there
    gone = sorted((_sets(moment, uid, coming, ranks) for uid in uids), key=repr)
    books = sorted(
        (target, book.threshold, book.accepted, book.proven, book.most)
        for target, book in moment.truth.books.items()
    )
    pool: tuple[Hashable, ...] = (
        moment.pool.target,
        moment.wishes,
        moment.left,
        repr(moment.view.spec),
        tuple(sorted(moment.halted)) if coming is not None else None,
        moment.rollout is not None and moment.rollout.revision == moment.view.revision,
        _of_rollout(moment.status),
        _of_rollout(coming) if coming is not None else None,
    )
    return hash(repr((nodes, gone, books, pool)))


def _of_rollout(status: RolloutStatus) -> tuple[Hashable, ...]:
    order = sorted(
        (one.proven_at, target) for target, one in status.targets.items() if one.proven_at
    )
    return (
        status.target,
        status.phase,
        status.base,
        status.last_good,
        tuple(target for _, target in order),
        tuple(
            (target, one.threshold, one.accepted, one.proven, one.complete)
            for target, one in sorted(status.targets.items())
        ),
        repr(status.counts),
    )


def _ranks(status: RolloutStatus) -> dict[float, int]:
    times = sorted({entry.since for entry in status.in_flight.values()})
    return {time: rank for rank, time in enumerate(times)}


def _entry(
    entry: InFlight | None, token: int, ranks: dict[float, int]
) -> tuple[Hashable, ...] | None:
    if entry is None:
        return None
    rank = ranks.get(entry.since, -1)
    return entry.target, entry.outside, entry.validates, entry.token - token, rank


def _sets(
    moment: ModelState,
    uid: str,
    coming: RolloutStatus | None,
    ranks: dict[float, int],
    token: int = 0,
) -> tuple[Hashable, ...]:
    statuses = [moment.status] if coming is None else [moment.status, coming]
    held = tuple(
        (
            _entry(status.in_flight.get(uid), token, ranks),
            tuple(
                (target, uid in one.failed, uid in one.validated)
                for target, one in sorted(status.targets.items())
            ),
        )
        for status in statuses
    )
    truth = tuple(
        (target, uid in book.failed, uid in book.validated)
        for target, book in sorted(moment.truth.books.items())
    )
    return held, truth, moment.truth.sick.get(uid)


def _of(
    moment: ModelState, node: NodeView, coming: RolloutStatus | None, ranks: dict[float, int]
) -> tuple[Hashable, ...]:
    record = node.record if isinstance(node.record, NodeRecord) else None
    token = record.token if record is not None else 0
    write = moment.writes.get(node.name)
    said: Hashable = None
    if record is not None:
        proof = record.evidence
        said = (
            record.operation, record.target, record.label, record.state, record.started,
            record.outside, record.attempt, record.unproven, record.asked, record.pool,
            (proof.label, proof.token - token) if proof is not None else None,
        )  # fmt: skip
    return (
        node.pool, node.state, node.driver_label, node.cordoned, node.lease is not None, said,
        len(node.driver_pods), node.loaded is not None,
        node.preflight.label if node.preflight is not None else None,
        (write.step.because, sorted(write.halted)) if write is not None else None,
        write is not None and fits(node, write.step),
        _sets(moment, node.uid, coming, ranks, token),
    )  # fmt: skip
