"""What is written down of one play: the course of each node, and what it cost.

All times are seconds from the beginning of the play. Must not know how it is played.
"""

from collections.abc import Mapping

import msgspec

from libs.rollout.decision import Wait


class NodeResult(msgspec.Struct, kw_only=True):
    """One node's way, of those that were not where their policy wants them."""

    start: float | None = None
    """When it was first taken up."""
    end: float | None = None
    """When it first was in place."""
    failed: float | None = None
    """When it failed last, if it was not mended after that."""
    evicted: frozenset[str] = frozenset()
    """Uids of pods that were asked to leave, or deleted."""
    wait: Wait | None = None
    """What it waited for at the end, if it was not in place by then."""

    @property
    def over_at(self) -> float | None:
        """When there was nothing more to be done about it, be it that it failed."""
        return self.failed if self.end is None else self.end


class ProofDelay(msgspec.Struct, frozen=True, kw_only=True):
    """What took the longest while the target was on proof."""

    node: str
    detail: str
    seconds: float
    """Infinite: it did not end in the play."""


class ProofResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a target fared that had to prove itself."""

    threshold: int
    proven_at: float | None
    """None: it never came to that."""
    delay: ProofDelay | None


class CapacityLoss(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was out of service at one time, and since when it was so much."""

    nodes: int
    gpus: int
    at: float


class PlayResult(msgspec.Struct, frozen=True, kw_only=True):
    """One play."""

    nodes: Mapping[str, NodeResult]
    """By name of the node, of all that had something before them."""
    loss: CapacityLoss
    gpu_seconds: float
    """Out of service, of nodes that were in service before, until the last node was over."""
    proof: ProofResult | None
    """None: nothing had to be proven."""
    halted_because: str
    """Why the target was halted in the end; empty: it was not."""
    duration: float
    """Until the last of those that came to an end did."""
