"""Summarize the results of several plays of one pool."""

from collections.abc import Iterable, Sequence
from math import inf

from msgspec.structs import replace

from libs.contracts.node import WaitCode
from libs.forecast.play_result import CapacityLoss, NodeResult, PlayResult, ProofDelay
from libs.forecast.rollout_plan import (
    Percentiles,
    ProofForecast,
    percentiles_of,
    predicted_percentiles,
)
from libs.rollout.decision import Wait
from libs.rollout.wait_reasons import WAITS_OF_NODES

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


def makespan(results: Sequence[PlayResult]) -> Percentiles:
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
        return Percentiles()
    return predicted_percentiles((_done_at(result, left_out) for result in results), len(results))


def final_wait(found: Sequence[NodeResult], end: Percentiles) -> Wait | None:
    """Return the node's wait in the first play that does not complete it.

    A failure that usually does not occur is no wait.
    """
    if end.p95 is not None:
        return None
    waits = [node.wait for node in found if node.end is None and node.wait is not None]
    return next(
        (wait for wait in waits if end.p50 is None or wait.code is not WaitCode.FAILED), None
    )


def largest_loss(results: Iterable[PlayResult]) -> CapacityLoss:
    """Return the largest loss of all plays; among equal ones, the earliest."""
    losses = (result.loss for result in results)
    return max(losses, key=lambda loss: (loss.nodes, loss.gpus, -loss.at))


def first_loss(results: Sequence[PlayResult]) -> CapacityLoss | None:
    """Return what is unavailable before anything starts, the same in all plays; None: nothing."""
    first = results[0].losses[:1]
    return next((loss for loss in first if loss.nodes and not loss.at), None)


def typical_play(results: Sequence[PlayResult]) -> PlayResult:
    """Return the play of median duration."""
    return sorted(results, key=lambda result: result.duration)[(len(results) - 1) // 2]


def losses_of(typical: PlayResult) -> tuple[CapacityLoss, ...]:
    """Return the changes of the unavailable nodes in a play.

    Of many changes, those of a short time are one: the largest of them.
    """
    losses = [loss for loss in typical.losses if loss.at <= typical.duration]
    if len(losses) <= _MOST_LOSSES:
        return tuple(losses)
    by_time: dict[int, list[CapacityLoss]] = {}
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
