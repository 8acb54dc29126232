"""Pool evaluation when nodes have left the pool or its counts."""

from msgspec.structs import replace

from libs.contracts.rollout import InFlight
from libs.rollout.reconcile.contribution import contribution_of
from libs.rollout.reconcile.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import candidate, entry, of_target, open_pool
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    done,
    failed,
    in_flight_node,
    instant,
)


def put(tally: PoolTally, *nodes: NodeView, places: dict[str, InFlight] | None = None) -> PoolTally:
    for one in nodes:
        tally.put(contribution_of(one, (places or {}).get(one.uid), POOL, NOW))
    return tally


def reckoned(pool: PoolView, tally: PoolTally) -> PoolEvaluation:
    return evaluate_pool(pool, tally, instant(), leading=True)


def test_a_target_is_forgotten_when_its_last_node_leaves_it() -> None:
    pool = open_pool(base=2)
    for one in (failed("n"), in_flight_node(name="n")):
        tally = put(PoolTally(), one, places={one.uid: entry(one, token=TOKEN)})
        assert list(reckoned(pool, tally).records) == [NEW]
        put(tally, done("n", OLD))
        assert dict(reckoned(pool, tally).records) == {}


def test_an_entry_of_a_node_that_is_not_ready_takes_no_slot() -> None:
    away, waits = candidate("away", ready=False, pool="another"), candidate("waits")
    places = {away.uid: entry(away, since=NOW - 9), waits.uid: entry(waits)}
    one = {"max_parallel_upgrades": 0, "max_unavailable": 1}
    pool = open_pool(record=of_target(), base=9, in_flight=places, upgrade=one)
    made = reckoned(pool, put(PoolTally(), away, waits, places=places))
    assert (made.limit, made.constraints.may_begin, made.held_back) == (1, {waits.uid}, {away.uid})
    back = replace(away, ready=True)
    made = reckoned(pool, put(PoolTally(), back, waits, places=places))
    assert (made.constraints.may_begin, made.held_back) == ({away.uid}, {waits.uid})


def test_steps_see_neither_ended_nor_withdrawn_entries() -> None:
    ended, back, kept = done("ended"), candidate("back"), candidate("kept")
    places = {
        ended.uid: entry(ended, token=TOKEN),
        back.uid: entry(back, target=OLD),
        kept.uid: entry(kept),
    }
    pool = open_pool(record=of_target(), base=9, in_flight=places)
    made = reckoned(pool, put(PoolTally(), ended, back, kept, places=places))
    assert (made.withdrawn, list(made.constraints.in_flight)) == ({back.uid}, [kept.uid])
