"""`Rollout`, one object per pool: where its rollout stands, and people's brake and release.

`spec` is for people's hands; `status` is written by the scheduler alone, by compare-and-set. These
are its Kubernetes fields, so names are in camel case on the wire.
"""

import msgspec

from libs.contracts.message import OpenEnum

GROUP = "sluice.dev"
VERSION = "v1alpha1"
KIND = "Rollout"
PLURAL = "rollouts"
FINALIZER = "sluice.dev/open-rollout"


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class Brake(OpenEnum):
    """Pause: nothing starts, what is in flight finishes. Freeze: nothing moves, clocks stop."""

    NONE = "None"
    PAUSE = "Pause"
    FREEZE = "Freeze"


class RolloutPhase(OpenEnum):
    """Where a rollout stands."""

    PROVING = "Proving"
    PROVEN = "Proven"
    HALTED = "Halted"
    COMPLETE = "Complete"


class Release(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A person accepts so many failures of this target; a halt ends by it."""

    target: str
    failures: int


class RolloutSpec(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """People's part."""

    brake: Brake = Brake.NONE
    release: Release | None = None


class InFlight(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A node that was granted and has not ended."""

    node: str
    token: int
    target: str
    since: float
    """When it was granted."""
    outside: bool = False
    """Outside the counts of bounded harm and of `maxParallelUpgrades`."""
    validates: bool = False
    """It is merely validated again: nothing is taken from it."""


class TargetRecord(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a pool knows of one target; kept until it is proven and complete."""

    threshold: int
    """T: so many nodes prove it, and so many failures halt it."""
    accepted: int = 0
    failed: tuple[str, ...] = ()
    """Node uids that were healthy and failed on it. Sticky."""
    validated: tuple[str, ...] = ()
    """Node uids with evidence, up to T."""
    proven: bool = False
    proven_at: float = 0.0
    """When it was proven last: the newest is the last-good."""
    complete: bool = False
    """It was proven and complete when the pool last wanted it: kept only while it is last-good."""
    halted_because: str = ""


class Counts(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The pool's nodes, by where they are."""

    total: int = 0
    done: int = 0
    in_flight: int = 0
    failed: int = 0
    skipped: int = 0
    excluded: int = 0
    waiting: int = 0
    unavailable: int = 0
    limit: int = 0


class RolloutStatus(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The scheduler's part: starts are granted here before any node is touched."""

    target: str = ""
    phase: RolloutPhase = RolloutPhase.PROVING
    because: str = ""
    epoch: int = 0
    base: int = 0
    """Nodes of the pool at the first grant: the budget's percentages are of it."""
    last_good: str = ""
    frozen_since: float | None = None
    frozen_seconds: float = 0.0
    in_flight: dict[str, InFlight] = {}
    """By node uid."""
    targets: dict[str, TargetRecord] = {}
    """By target: every one that is open, halted or last-good."""
    counts: Counts = Counts()
    observed_generation: int = 0
