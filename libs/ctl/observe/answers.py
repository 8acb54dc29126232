"""What the verbs answer about a GPU Operator's fleet, as data for programs and views. Pure."""

import msgspec

from libs.contracts.rollout import Counts
from libs.ctl.answers import NodeFact
from libs.ctl.observe.budget import Budget, blocked_because, budget_of
from libs.ctl.observe.explain import Explanation, explain, is_settled
from libs.ctl.observe.fleet import (
    FAILED,
    REQUIRED,
    Operator,
    OperatorFleet,
    OperatorNode,
    OperatorPool,
)
from libs.ctl.observe.objects import DONE
from libs.ctl.observe.pods import Evicted
from libs.ctl.observe.traps import Trap, traps_of
from libs.fleet.pools import Pool
from libs.fleet.status import Source


class ObservedStatus(msgspec.Struct, frozen=True, kw_only=True):
    operator: Operator
    pools: tuple[Pool, ...]
    nodes: tuple[OperatorNode, ...]
    """Of all pools, the nodes that are not done; of one pool, all its nodes."""
    traps: tuple[Trap, ...]
    sources: tuple[Source, ...]


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    operator: Operator
    node: OperatorNode
    why: Explanation
    evicted: tuple[Evicted, ...]
    traps: tuple[Trap, ...]
    events: tuple[NodeFact, ...]
    sources: tuple[Source, ...]


def status_of(
    fleet: OperatorFleet, sources: tuple[Source, ...], *, pool: str, now: float
) -> ObservedStatus:
    """Return the overview of the fleet, or of one pool."""
    chosen = [each for each in fleet.pools if pool in ("", each.name)]
    rows = [
        _row(node, each, budget_of(each), now)
        for each in chosen
        for node in each.nodes
        if pool or not is_settled(node)
    ]
    outside = [] if pool else [_row(node, None, None, now) for node in fleet.outside]
    return ObservedStatus(
        operator=fleet.operator,
        pools=tuple(map(_pool, chosen)),
        nodes=tuple(sorted((*rows, *outside), key=lambda row: row.name)),
        traps=traps_of(fleet),
        sources=sources,
    )


def _pool(pool: OperatorPool) -> Pool:
    """Return a pool as `status` shows any: its nodes in numbers, and why none of them starts.

    The operator counts a failed node as in progress; here it is counted as failed alone.
    """
    budget, nodes = budget_of(pool), pool.managed
    failed = sum(node.state == FAILED for node in nodes)
    counts = Counts(
        total=budget.managed,
        done=sum(node.state in DONE for node in nodes),
        in_flight=budget.in_progress - failed,
        failed=failed,
        waiting=sum(node.state == REQUIRED for node in nodes),
        unavailable=budget.unavailable,
        limit=budget.limit,
    )
    return Pool(
        name=pool.name,
        version=pool.version,
        counts=msgspec.structs.asdict(counts),
        because=blocked_because(pool, budget) if counts.waiting else "",
    )


def _row(
    node: OperatorNode, pool: OperatorPool | None, budget: Budget | None, now: float
) -> OperatorNode:
    because = explain(node, pool, budget, now=now).because if _is_told(node) else ""
    return msgspec.structs.replace(node, because=because)


def _is_told(node: OperatorNode) -> bool:
    """Whether the reason is known without the pods of the node."""
    return node.state not in (
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
    )


def node_of(
    fleet: OperatorFleet,
    node: OperatorNode,
    *,
    evicted: tuple[Evicted, ...],
    jobs: tuple[str, ...],
    events: tuple[NodeFact, ...],
    sources: tuple[Source, ...],
    now: float,
) -> ObservedNode:
    """Return all that is known of a node."""
    pool = pool_with(fleet, node)
    budget = None if pool is None else budget_of(pool)
    return ObservedNode(
        operator=fleet.operator,
        node=node,
        why=explain(node, pool, budget, evicted=evicted, jobs=jobs, now=now),
        evicted=evicted,
        traps=tuple(trap for trap in traps_of(fleet) if not trap.nodes or node.name in trap.nodes),
        events=events,
        sources=sources,
    )


def pool_with(fleet: OperatorFleet, node: OperatorNode) -> OperatorPool | None:
    """Return the pool that counts the node."""
    return next((pool for pool in fleet.pools if node in pool.nodes), None)
