"""Evaluations of pools with given nodes, and policies that change during a rollout."""

from msgspec.structs import replace

from libs.contracts.rollout import InFlight
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import entry, open_pool
from tests.unit.rollout.builders import NEW, NOW, OLD, TOKEN, instant, with_status

THIRD = "target-third"
ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}


def tally_of(pool: PoolView, *nodes: NodeView) -> PoolTally:
    tally = PoolTally()
    assert pool.rollout is not None
    tally.load_failures(pool.rollout.status)
    for node in nodes:
        flight = pool.rollout.status.in_flight.get(node.uid)
        tally.put(contribution_of(node, flight, pool.key, NOW))
    return tally


def evaluate(pool: PoolView, *nodes: NodeView, now: Instant | None = None) -> PoolEvaluation:
    return evaluate_pool(pool, tally_of(pool, *nodes), now or instant(), leading=True)


def edited(target: str = THIRD, **changes: object) -> PoolView:
    """Return a pool with these changes of its status whose policy wants another target now."""
    pool = open_pool(upgrade=ALL, base=9, targets=(OLD, NEW, THIRD), target=target)
    return with_status(pool, **changes)


def entries(*nodes: NodeView, target: str = NEW, **changes: object) -> dict[str, InFlight]:
    """Return the entries of nodes that began, the first one the oldest."""
    return {
        node.uid: replace(entry(node, token=TOKEN, target=target, since=NOW - 90 + at), **changes)
        for at, node in enumerate(nodes)
    }
