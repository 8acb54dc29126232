"""The result of one play. Times are seconds from its beginning."""

from collections.abc import Mapping

import msgspec

from libs.rollout.decision import Wait


class NodeResult(msgspec.Struct, kw_only=True):
    """The course of a node that was not up to date at the beginning."""

    start: float | None = None
    """When it first started."""
    end: float | None = None
    """When it was first up to date."""
    failed: float | None = None
    """When it last failed, unless it recovered."""
    evicted: frozenset[str] = frozenset()
    """Uids of pods that were evicted or deleted."""
    wait: Wait | None = None
    """Its wait at the end of the play, if it was not up to date."""

    @property
    def over_at(self) -> float | None:
        """Return when it was done, successfully or not."""
        return self.failed if self.end is None else self.end


class ProofDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The longest wait while the target was being proven."""

    node: str
    detail: str
    seconds: float
    """Infinite: it did not end in the play."""


class ProofResult(msgspec.Struct, frozen=True, kw_only=True):
    threshold: int
    proven_at: float | None
    """None: it was not proven in the play."""
    delay: ProofDelay | None


class CapacityLoss(msgspec.Struct, frozen=True, kw_only=True):
    """The largest number of unavailable nodes at one time, and since when."""

    nodes: int
    gpus: int
    at: float


class PlayResult(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Mapping[str, NodeResult]
    """The nodes that had anything to do, by name."""
    loss: CapacityLoss
    gpu_seconds: float
    """Lost until the last node was done, by nodes that were available before."""
    proof: ProofResult | None
    """None: the target needed no proof."""
    halted_because: str
    """Empty: the target was not halted in the end."""
    duration: float
    """Until the last node that finished did so."""
