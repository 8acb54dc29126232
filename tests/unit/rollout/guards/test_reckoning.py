"""Where a pool stands when some of its nodes have left it, or come to nothing there any more."""

from msgspec.structs import replace

from libs.contracts.rollout import InFlight
from libs.rollout.reconcile.bearing import bearing
from libs.rollout.reconcile.reckoning import Reckoning, reckon
from libs.rollout.reconcile.tally import Tally
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.starting import clear, entry, of_target, open_pool
from tests.unit.rollout.building import NEW, NOW, OLD, POOL, TOKEN, done, failed, instant, under_way


def put(tally: Tally, *nodes: NodeView, places: dict[str, InFlight] | None = None) -> Tally:
    """What these come to, with the places that they have."""
    for one in nodes:
        tally.put(bearing(one, (places or {}).get(one.uid), POOL, NOW))
    return tally


def reckoned(pool: PoolView, tally: Tally) -> Reckoning:
    return reckon(pool, tally, instant(), leading=True)


def test_a_target_on_which_nobody_is_any_more_is_not_known_for_that() -> None:
    pool = open_pool(base=2)
    for one in (failed("n"), under_way(name="n")):
        tally = put(Tally(), one, places={one.uid: entry(one, token=TOKEN)})
        assert list(reckoned(pool, tally).records) == [NEW]
        put(tally, done("n", OLD))
        assert dict(reckoned(pool, tally).records) == {}


def test_who_is_not_ready_takes_no_place_from_who_could_begin() -> None:
    """Also where it has left its pool, so that it is not among its unavailable nodes."""
    away, waits = clear("away", ready=False, pool="another"), clear("waits")
    places = {away.uid: entry(away, since=NOW - 9), waits.uid: entry(waits)}
    one = {"max_parallel_upgrades": 0, "max_unavailable": 1}
    pool = open_pool(record=of_target(), base=9, in_flight=places, upgrade=one)
    made = reckoned(pool, put(Tally(), away, waits, places=places))
    assert (made.limit, made.standing.lowered, made.held) == (1, {waits.uid}, {away.uid})
    back = replace(away, ready=True)
    made = reckoned(pool, put(Tally(), back, waits, places=places))
    assert (made.standing.lowered, made.held) == ({away.uid}, {waits.uid})


def test_a_place_that_ended_or_is_taken_back_is_none_to_any_step() -> None:
    ended, back, kept = done("ended"), clear("back"), clear("kept")
    places = {
        ended.uid: entry(ended, token=TOKEN),
        back.uid: entry(back, target=OLD),
        kept.uid: entry(kept),
    }
    pool = open_pool(record=of_target(), base=9, in_flight=places)
    made = reckoned(pool, put(Tally(), ended, back, kept, places=places))
    assert (made.dropped, list(made.standing.in_flight)) == ({back.uid}, [kept.uid])
