"""Summarize the results of several plays of one pool.

A play in which an event never happens counts as infinitely late, so a percentile is never too
early. Plays in which the driver is halted are counted, but only if they are the most do they make
times unknown.
"""

from collections.abc import Iterable, Sequence
from math import ceil, inf, sqrt
from statistics import mean, stdev

from msgspec.structs import replace

from libs.contracts.queries import CapacityPoint
from libs.contracts.waits import WAITS_OF_NODES, WaitCode
from libs.forecast.forecast import ProofForecast
from libs.forecast.play_result import NodeResult, PlayResult, ProofDelay
from libs.rollout.decision import Wait
from libs.rollout.plan_time import PlanTime

_MEDIAN, _LATE = 0.5, 0.95
_STUDENT = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833),
    *(1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740),
)
"""The 95 % quantiles of Student's distribution for 2 to 18 plays."""
_MOST_LOSSES = 240
"""Changes of the unavailable nodes that a plan has at most."""

_NOTABLE_SECONDS = 600.0
"""Minimum seconds of a wait during the proof phase to be reported."""


def timed(results: Sequence[PlayResult]) -> Sequence[PlayResult]:
    """Return the plays whose times count: those in which the driver is not halted, if they are the
    most.
    """
    running = [result for result in results if not result.halted_because]
    return running if 2 * len(running) > len(results) else results


def node_names(results: Iterable[PlayResult]) -> list[str]:
    """Return the names of all nodes that were not up to date."""
    return sorted({name for result in results for name in result.nodes})


def node_results(results: Sequence[PlayResult], name: str) -> list[NodeResult]:
    """Return the results of one node; a play in which it was up to date has none."""
    return [result.nodes[name] for result in results if name in result.nodes]


def unmoved(results: Sequence[PlayResult]) -> list[str]:
    """Return the nodes that start in no play."""
    return [
        name
        for name in node_names(results)
        if all(node.start is None and node.end is None for node in node_results(results, name))
    ]


def makespan(results: Sequence[PlayResult]) -> PlanTime:
    """Return the time until the last node that can move is upgraded or has failed.

    None: no node moves, or the end of one that does is unknown.
    """
    left_out = {
        name
        for name in unmoved(results)
        if all(_is_own_wait(node.wait) for node in node_results(results, name))
    }
    names = set(node_names(results))
    for name in names:
        if all(map(_is_kept_out, node_results(results, name))):
            left_out.add(name)
    if names and names == left_out:
        return PlanTime()
    return predicted_percentiles((_done_at(result, left_out) for result in results), len(results))


def final_wait(found: Sequence[NodeResult], end: PlanTime) -> Wait | None:
    """Return the node's wait in the first play that does not complete it.

    A failure that usually does not occur is no wait.
    """
    if end.p95 is not None:
        return None
    waits = [node.wait for node in found if node.end is None and node.wait is not None]
    return next(
        (wait for wait in waits if end.p50 is None or wait.code is not WaitCode.FAILED), None
    )


def largest_loss(results: Iterable[PlayResult]) -> CapacityPoint:
    """Return the largest loss of all plays; among equal ones, the earliest."""
    losses = (result.loss for result in results)
    return max(losses, key=lambda loss: (loss.nodes, loss.gpus, -loss.at))


def first_loss(results: Sequence[PlayResult]) -> CapacityPoint | None:
    """Return what is unavailable before anything starts, the same in all plays; None: nothing."""
    first = results[0].losses[:1]
    return next((loss for loss in first if loss.nodes and not loss.at), None)


def typical_play(results: Sequence[PlayResult]) -> PlayResult:
    """Return the play of median duration."""
    return sorted(results, key=lambda result: result.duration)[(len(results) - 1) // 2]


def losses_of(typical: PlayResult) -> tuple[CapacityPoint, ...]:
    """Return the changes of the unavailable nodes in a play.

    Of many changes, those of a short time are one: the largest of them.
    """
    losses = [loss for loss in typical.losses if loss.at <= typical.duration]
    if len(losses) <= _MOST_LOSSES:
        return tuple(losses)
    by_time: dict[int, list[CapacityPoint]] = {}
    for loss in losses:
        part = int(_MOST_LOSSES * loss.at / (typical.duration + 1.0))
        by_time.setdefault(part, []).append(loss)
    return tuple(
        replace(max(some, key=lambda loss: (loss.nodes, loss.gpus)), at=some[0].at)
        for some in by_time.values()
    )


def proof_forecast(results: Sequence[PlayResult]) -> ProofForecast | None:
    """Return how the target is proven; None: it needs no proof."""
    proofs = [result.proof for result in results if result.proof is not None]
    if not proofs:
        return None
    notable = [
        proof.delay
        for proof in proofs
        if proof.delay is not None and _is_notable(proof.delay, proof.proven_at)
    ]
    return ProofForecast(
        threshold=max(proof.threshold for proof in proofs),
        after=percentiles_of((proof.proven_at for proof in proofs), len(results)),
        delay=max(notable, key=lambda delay: (delay.seconds, delay.node)) if notable else None,
    )


def _is_own_wait(wait: Wait | None) -> bool:
    return wait is not None and wait.code in WAITS_OF_NODES


def _is_kept_out(node: NodeResult) -> bool:
    """Return whether people keep the node out in the end, even after its start was granted."""
    return node.over_at is None and node.wait is not None and node.wait.code is WaitCode.SKIPPED


def _done_at(result: PlayResult, left_out: set[str]) -> float | None:
    ends = (
        node.over_at
        for name, node in result.nodes.items()
        if name not in left_out and not _is_kept_out(node)
    )
    last = max((inf if end is None else end for end in ends), default=0.0)
    return None if last == inf else last


def _is_notable(delay: ProofDelay, proven: float | None) -> bool:
    """Return whether the delay takes half of the proof phase, and more than a few minutes."""
    return delay.seconds >= _NOTABLE_SECONDS and (proven is None or 2 * delay.seconds >= proven)


# Percentiles over plays.


def percentiles_of(times: Iterable[float | None], plays: int) -> PlanTime:
    """Return percentiles over this number of plays; None and missing times count as infinite.

    The rollout itself is like one more play, so that the 95 % figure is the time within which 95 %
    of further plays end; of fewer than 19 plays it is the worst, which is too early.
    """
    ordered = _ordered(times, plays)
    return PlanTime(_within(ordered, _MEDIAN), _at(ordered, _further(_LATE, plays)))


def predicted_percentiles(times: Iterable[float | None], plays: int) -> PlanTime:
    """Return percentiles as `percentiles_of`; of few plays, the 95 % figure adds their spread.

    It is the upper limit of a further play if plays are normally distributed.
    """
    ordered = _ordered(times, plays)
    found = percentiles_of(ordered, plays)
    if found.p95 is None or not 2 <= plays <= len(_STUDENT) + 1:
        return found
    spread = _STUDENT[plays - 2] * stdev(ordered) * sqrt(1.0 + 1.0 / plays)
    return PlanTime(found.p50, max(found.p95, mean(ordered) + spread))


def _ordered(times: Iterable[float | None], plays: int) -> list[float]:
    ordered = sorted(inf if time is None else time for time in times)
    if len(ordered) > plays or plays < 1:
        raise ValueError(f"{len(ordered)} times cannot come from {plays} plays: one each at most")
    return ordered + [inf] * (plays - len(ordered))


def upper_median(amounts: Iterable[float]) -> float:
    """Return the median, of two the greater; 0 without amounts."""
    ordered = sorted(amounts)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _within(ordered: list[float], share: float) -> float | None:
    return _at(ordered, ceil(share * len(ordered)))


def _further(share: float, plays: int) -> int:
    """Return the rank of the play within which this share of further plays ends."""
    return min(plays, ceil(share * (plays + 1)))


def _at(ordered: list[float], rank: int) -> float | None:
    time = ordered[rank - 1]
    return None if time == inf else time
