"""Summarize the results of several plays of one pool."""

from collections.abc import Iterable, Sequence
from math import inf

from libs.contracts.waits import WaitCode
from libs.forecast.percentiles import Percentiles, percentiles_of
from libs.forecast.play_result import CapacityLoss, NodeResult, PlayResult, ProofDelay
from libs.forecast.rollout_plan import ProofForecast
from libs.rollout.decision import Wait

OWN_WAITS = frozenset(
    {
        WaitCode.SKIPPED,
        WaitCode.PREFLIGHT,
        WaitCode.AGENT_SILENT,
        WaitCode.NOT_READY,
        WaitCode.TARGET_MISSING,
        WaitCode.TARGET_UNSETTLED,
        WaitCode.FAILED,
        WaitCode.LABEL_EDITED,
        WaitCode.RECORD_LOST,
        WaitCode.DRIVER_RESTARTING,
    }
)
"""Waits that only concern the node itself: the rollout of the other nodes completes without it."""

_OF_NOTE = 600.0
"""Minimum seconds of a wait during the proof phase to be reported."""


def node_names(stories: Iterable[PlayResult]) -> list[str]:
    """Return the names of all nodes that had anything to do."""
    return sorted({name for story in stories for name in story.nodes})


def node_results(stories: Sequence[PlayResult], name: str) -> list[NodeResult]:
    """Return the results of one node; plays in which it had nothing to do have none."""
    return [story.nodes[name] for story in stories if name in story.nodes]


def unmoved(stories: Sequence[PlayResult]) -> list[str]:
    """Return the nodes that start in no play."""
    return [
        name
        for name in node_names(stories)
        if all(
            course.start is None and course.end is None for course in node_results(stories, name)
        )
    ]


def makespan(stories: Sequence[PlayResult]) -> Percentiles:
    """Return the time until the last node that can move is upgraded or has failed."""
    left_out = {
        name
        for name in unmoved(stories)
        if all(_by_itself(course.wait) for course in node_results(stories, name))
    }
    there = set(node_names(stories))
    if there and there == left_out:
        return Percentiles()
    return percentiles_of((_through(story, left_out) for story in stories), len(stories))


def final_wait(found: Sequence[NodeResult], end: Percentiles) -> Wait | None:
    """Return the node's wait in the first play that does not complete it.

    A failure that usually does not occur is no wait.
    """
    if end.p95 is not None:
        return None
    waits = (each.wait for each in found if each.end is None and each.wait is not None)
    return next((w for w in waits if end.p50 is None or w.code is not WaitCode.FAILED), None)


def largest_loss(stories: Iterable[PlayResult]) -> CapacityLoss:
    """Return the largest loss of all plays; among equal ones, the earliest."""
    losses = (story.loss for story in stories)
    return max(losses, key=lambda loss: (loss.nodes, loss.gpus, -loss.at))


def proof_forecast(stories: Sequence[PlayResult]) -> ProofForecast | None:
    """Return how the target is proven; None: it needs no proof."""
    proofs = [story.proof for story in stories if story.proof is not None]
    if not proofs:
        return None
    notable = [
        each.delay
        for each in proofs
        if each.delay is not None and _notable(each.delay, each.proven_at)
    ]
    return ProofForecast(
        threshold=max(each.threshold for each in proofs),
        after=percentiles_of((each.proven_at for each in proofs), len(stories)),
        delay=max(notable, key=lambda held: (held.seconds, held.node)) if notable else None,
    )


def _by_itself(wait: Wait | None) -> bool:
    return wait is not None and wait.code in OWN_WAITS


def _through(story: PlayResult, left_out: set[str]) -> float | None:
    ends = (course.over_at for name, course in story.nodes.items() if name not in left_out)
    last = max((inf if end is None else end for end in ends), default=0.0)
    return None if last == inf else last


def _notable(held: ProofDelay, proven: float | None) -> bool:
    """Return whether the delay takes half of the proof phase, and more than a few minutes."""
    return held.seconds >= _OF_NOTE and (proven is None or 2 * held.seconds >= proven)
