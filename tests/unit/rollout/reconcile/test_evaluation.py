"""Pool evaluation when nodes have left the pool or its counts."""

from msgspec.structs import replace

from libs.contracts.rollout import InFlight
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.evaluation import evaluate_pool
from libs.rollout.pool.tally import PoolTally
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
from tests.unit.rollout.reconcile.builders import evaluate


def test_a_target_is_forgotten_when_its_last_node_leaves_it() -> None:
    pool = open_pool(base=2)
    for item in (failed("n"), in_flight_node(name="n")):
        tally = PoolTally()
        tally.put(contribution_of(item, entry(item, token=TOKEN), POOL, NOW))
        assert list(evaluate_pool(pool, tally, instant(), leading=True).records) == [NEW]
        tally.put(contribution_of(done("n", OLD), None, POOL, NOW))
        assert not evaluate_pool(pool, tally, instant(), leading=True).records


def test_an_entry_of_a_node_that_is_not_ready_takes_no_slot() -> None:
    away, waits = candidate("away", ready=False, pool="another"), candidate("waits")
    places = {away.uid: entry(away, since=NOW - 9), waits.uid: entry(waits)}
    upgrade = {"max_parallel_upgrades": 0, "max_unavailable": 1}
    pool = open_pool(record=of_target(), base=9, in_flight=places, upgrade=upgrade)
    evaluation = evaluate(pool, away, waits)
    assert (evaluation.limit, evaluation.constraints.may_begin, evaluation.held_back) == (
        1,
        {waits.uid},
        {away.uid},
    )
    back = replace(away, ready=True)
    evaluation = evaluate(pool, back, waits)
    assert (evaluation.constraints.may_begin, evaluation.held_back) == ({away.uid}, {waits.uid})


def test_steps_see_neither_ended_nor_withdrawn_entries() -> None:
    ended, back, kept = done("ended"), candidate("back"), candidate("kept")
    places = {
        ended.uid: entry(ended, token=TOKEN),
        back.uid: entry(back, target=OLD),
        kept.uid: entry(kept),
    }
    pool = open_pool(record=of_target(), base=9, in_flight=places)
    evaluation = evaluate(pool, ended, back, kept)
    assert (evaluation.withdrawn, list(evaluation.constraints.in_flight)) == (
        {back.uid},
        [kept.uid],
    )


def test_a_tally_forgets_nodes_that_no_longer_count() -> None:
    tally = PoolTally()
    began = InFlight(node="n", token=TOKEN, target=NEW, since=NOW - 30)
    tally.put(contribution_of(failed("n"), None, POOL, NOW))
    tally.put(contribution_of(done("n"), began, POOL, NOW))
    assert (tally.failed[NEW], tally.validated[NEW]) == (set(), {"uid-n"})
    tally.put(contribution_of(done("n"), None, POOL, NOW))
    assert (tally.failed[NEW], tally.validated[NEW]) == (set(), set())
