import msgspec

from libs.contracts.asks import PlanAnswer, WaitReason
from libs.forecast import answer
from libs.forecast.world import NEVER, Oddity
from tests.unit.forecast.plays import Fixed, awaiting_jobs, foreseen, old, places, work
from tests.unit.rollout.building import NEW, NOW, POOL


def test_all_that_the_message_has_a_field_for_is_in_it() -> None:
    endless = Oddity(pod="uid-train", remainder=NEVER)
    nodes = [
        old("node-1", work("train", job=True)),
        old("node-2", work("web", budget="ml/web", bare=True)),
        old("node-3", work("solo", bare=True)),
    ]
    made = foreseen(places(**awaiting_jobs()), nodes, Fixed(endless), finish_by=NOW + 3600)
    said = answer(made)
    assert (said.pool, said.target) == (POOL, NEW)
    assert [node.node for node in said.nodes] == [node.node for node in made.nodes]
    by_name = {node.node: node for node in said.nodes}
    third = next(node for node in made.nodes if node.node == "node-3")
    assert by_name["node-3"].end_p50 == third.end.p50
    assert by_name["node-3"].start_p95 == third.start.p95
    assert by_name["node-3"].lost == third.lost != ()
    assert by_name["node-2"].blocked_by == ("ml/web (keeps ml/web)",)
    reason = by_name["node-1"].wait
    assert isinstance(reason, WaitReason)
    assert (reason.code, reason.detail) == ("jobs", "ml/train")
    assert said.makespan_p50 is None
    assert said.largest_loss == made.loss.nodes == 3
    assert said.gpu_hours_lost == made.gpu_hours_lost > 0
    assert said.needed_max_unavailable is None
    assert said.remarks == made.remarks


def test_it_travels() -> None:
    said = answer(foreseen(places(), [old("node-1")], finish_by=NOW + 3600))
    assert said.needed_max_unavailable == 1
    assert msgspec.json.decode(msgspec.json.encode(said), type=PlanAnswer) == said
