"""Summaries of plays, from invented results."""

from random import Random
from typing import Any

import pytest

from libs.contracts.queries import CapacityPoint
from libs.contracts.waits import WaitCode
from libs.forecast import aggregate
from libs.forecast.aggregate import percentiles_of, predicted_percentiles, upper_median
from libs.forecast.forecast import ProofForecast
from libs.forecast.play_result import NodeResult, PlayResult, ProofDelay, ProofResult
from libs.rollout.decision import Wait
from libs.rollout.plan_time import PlanTime
from libs.testing.not_none import not_none


def result(**nodes: NodeResult) -> PlayResult:
    return play_result(nodes=nodes)


def play_result(**changes: Any) -> PlayResult:
    defaults: dict[str, Any] = {
        "nodes": {},
        "loss": CapacityPoint(nodes=0, gpus=0, at=0.0),
        "gpu_seconds": 0.0,
        "proof": None,
        "halted_because": "",
        "duration": 0.0,
    }
    return PlayResult(**defaults | changes)


def wait(code: WaitCode) -> Wait:
    return Wait(code=code, detail="so", since=0.0)


JOBS, SKIPPED, FAILED = map(wait, (WaitCode.JOBS, WaitCode.SKIPPED, WaitCode.FAILED))
UNSTARTED = NodeResult(wait=SKIPPED)
DONE = NodeResult(start=1.0, end=5.0)


@pytest.mark.parametrize(
    "moved",
    [DONE, NodeResult(start=1.0, wait=SKIPPED), NodeResult(end=3.0)],
    ids=["upgraded", "taken up", "in place without that"],
)
def test_a_node_that_starts_in_one_play_is_not_unmoved(moved: NodeResult) -> None:
    assert aggregate.unmoved([result(a=UNSTARTED, b=UNSTARTED), result(a=moved, b=UNSTARTED)]) == [
        "b"
    ]
    assert aggregate.unmoved([result(a=moved, b=UNSTARTED), result(a=moved)]) == ["b"]


def test_the_makespan_leaves_out_nodes_that_cannot_start_by_themselves() -> None:
    assert aggregate.makespan([result(a=UNSTARTED, b=DONE)]) == PlanTime(5.0, 5.0)
    assert aggregate.makespan([result(a=NodeResult(wait=JOBS), b=DONE)]) == PlanTime()
    assert aggregate.makespan([result(a=NodeResult(), b=DONE)]) == PlanTime()
    silent = NodeResult(start=1.0, wait=wait(WaitCode.AGENT_SILENT))
    assert aggregate.makespan([result(a=silent, b=DONE)]) == PlanTime()
    results = [result(a=UNSTARTED, b=DONE), result(a=NodeResult(wait=JOBS), b=DONE)]
    assert aggregate.makespan(results).p95 is None


def test_the_makespan_leaves_out_nodes_that_people_take_out_after_their_start() -> None:
    taken = NodeResult(start=1.0, wait=SKIPPED)
    assert aggregate.makespan([result(a=taken, b=DONE)]) == PlanTime(5.0, 5.0)
    assert aggregate.makespan([result(a=taken, b=DONE), result(a=DONE, b=DONE)]).p50 == 5.0
    assert aggregate.makespan([result(a=taken), result(a=taken)]) == PlanTime()


def test_the_makespan_is_unknown_if_no_node_can_start() -> None:
    assert aggregate.makespan([result(a=UNSTARTED)]) == PlanTime()
    assert aggregate.makespan([result()]) == PlanTime(0.0, 0.0)


def test_a_failure_is_an_end_of_its_own() -> None:
    failed = NodeResult(start=1.0, failed=9.0, wait=FAILED)
    assert aggregate.makespan([result(a=failed, b=DONE)]) == PlanTime(9.0, 9.0)


@pytest.mark.parametrize(
    ("results", "end", "expected"),
    [
        ([DONE, NodeResult(wait=JOBS)], PlanTime(5.0, 5.0), None),
        ([DONE, NodeResult(wait=JOBS)], PlanTime(5.0, None), JOBS),
        ([NodeResult(end=5.0, wait=SKIPPED), NodeResult(wait=JOBS)], PlanTime(5.0, None), JOBS),
        ([NodeResult(), NodeResult(wait=JOBS)], PlanTime(), JOBS),
        ([NodeResult(wait=FAILED), NodeResult(wait=JOBS)], PlanTime(), FAILED),
        ([NodeResult(wait=FAILED), NodeResult(wait=JOBS)], PlanTime(5.0, None), JOBS),
        ([DONE, NodeResult(wait=FAILED)], PlanTime(5.0, None), None),
    ],
)
def test_the_final_wait_of_a_node(
    results: list[NodeResult], end: PlanTime, expected: Wait | None
) -> None:
    assert aggregate.final_wait(results, end) == expected


def test_of_equal_losses_the_earliest_is_the_largest() -> None:
    few, late, early = (
        CapacityPoint(nodes=nodes, gpus=8 * nodes, at=time)
        for nodes, time in ((1, 0.0), (2, 9.0), (2, 3.0))
    )
    assert aggregate.largest_loss([play_result(loss=loss) for loss in (few, late, early)]) == early


def proof_delay(node: str, seconds: float) -> ProofDelay:
    return ProofDelay(node=node, detail="so", seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "proven", "notable"),
    [
        (600.0, 1200.0, True),
        (599.0, 600.0, False),
        (700.0, 1401.0, False),
        (600.0, None, True),
    ],
)
def test_a_delay_is_notable_from_half_of_the_proof_and_ten_minutes_on(
    seconds: float, proven: float | None, notable: bool
) -> None:
    proof = ProofResult(threshold=2, proven_at=proven, delay=proof_delay("a", seconds))
    found = not_none(aggregate.proof_forecast([play_result(proof=proof), play_result()]))
    assert found.delay == (proof.delay if notable else None)


def test_the_proof_of_several_plays() -> None:
    proofs = [
        ProofResult(threshold=1, proven_at=1000.0, delay=proof_delay("a", 700.0)),
        ProofResult(threshold=3, proven_at=1100.0, delay=proof_delay("b", 900.0)),
        ProofResult(threshold=2, proven_at=900.0, delay=None),
    ]
    found = aggregate.proof_forecast([play_result(proof=proof) for proof in proofs])
    assert found == ProofForecast(
        threshold=3, after=PlanTime(1000.0, 1100.0), delay=proof_delay("b", 900.0)
    )
    assert aggregate.proof_forecast([play_result(), play_result()]) is None


@pytest.mark.parametrize(
    ("times", "plays", "expected"),
    [
        ((), 1, PlanTime(None, None)),
        ((5.0,), 1, PlanTime(5.0, 5.0)),
        ((None,), 1, PlanTime(None, None)),
        ((3.0, 1.0), 2, PlanTime(1.0, 3.0)),
        ((3.0, 1.0, 2.0), 3, PlanTime(2.0, 3.0)),
        ((1.0, None), 2, PlanTime(1.0, None)),
        ((1.0,), 2, PlanTime(1.0, None)),
        ((1.0,), 3, PlanTime(None, None)),
        (tuple(map(float, range(1, 20))), 19, PlanTime(10.0, 19.0)),
        (tuple(map(float, range(1, 21))), 20, PlanTime(10.0, 20.0)),
        ((*map(float, range(1, 20)), None), 20, PlanTime(10.0, None)),
        (tuple(map(float, range(1, 100))), 99, PlanTime(50.0, 95.0)),
        ((*map(float, range(1, 96)), *[None] * 4), 99, PlanTime(50.0, 95.0)),
    ],
)
def test_percentiles_count_half_of_the_plays_and_95_percent_of_further_ones(
    times: tuple[float | None, ...], plays: int, expected: PlanTime
) -> None:
    assert percentiles_of(times, plays) == expected


def test_enough_times_are_within_each_percentile() -> None:
    for plays in range(1, 60):
        times = [float((number * 7919) % 101) for number in range(plays)]
        found = percentiles_of(times, plays)
        assert found.p50 is not None
        assert found.p95 is not None
        assert found.p50 <= found.p95
        assert sum(time <= found.p50 for time in times) >= plays * 0.5
        assert sum(time <= found.p95 for time in times) >= plays * 0.95


def test_more_times_than_plays_are_refused() -> None:
    with pytest.raises(ValueError, match="2 times cannot come from 1 plays"):
        percentiles_of((1.0, 2.0), 1)


def test_percentiles_of_no_play_are_refused() -> None:
    with pytest.raises(ValueError, match="0 times cannot come from 0 plays"):
        percentiles_of((), 0)


def test_the_upper_median() -> None:
    assert upper_median(()) == 0.0
    assert upper_median((3.0, 1.0, 2.0)) == 2.0
    assert upper_median((3.0, 1.0)) == 3.0


NUMBERS = Random(7)


@pytest.mark.parametrize("plays", [2, 5, 19, 39, 99])
def test_the_95_percent_figure_covers_19_of_20_further_plays(plays: int) -> None:
    rounds = 4_000
    covered = 0
    for _ in range(rounds):
        *seen, further = (NUMBERS.gauss(100.0, 10.0) for _ in range(plays + 1))
        limit = predicted_percentiles(seen, plays).p95
        covered += limit is not None and further <= limit
    assert covered / rounds == pytest.approx(0.95, abs=0.015)


def test_an_unknown_end_in_few_plays_is_not_predicted() -> None:
    assert predicted_percentiles((1.0, 2.0, None), 3) == PlanTime(2.0, None)
    assert predicted_percentiles((1.0,), 1) == PlanTime(1.0, 1.0)
