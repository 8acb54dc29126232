"""The fields of `Rollout`, one object per pool with the rollout's state, brake and release.

People write `spec`; only the scheduler writes `status`, by compare-and-set. Names are camel case
on the wire, as in Kubernetes.
"""

import msgspec

from libs.contracts.message import OpenEnum
from libs.contracts.numbers import Count, Epoch, Integer, Token

GROUP = "sluice.dev"
VERSION = "v1alpha1"
KIND = "Rollout"
PLURAL = "rollouts"
FINALIZER = "sluice.dev/open-rollout"
BRAKE_SET_BY, BRAKE_REASON = "sluice.dev/brake-set-by", "sluice.dev/brake-reason"
"""The annotations with the user who wrote the brake by `sluice`, and why."""
RELEASE_SET_BY, RELEASE_REASON = "sluice.dev/release-set-by", "sluice.dev/release-reason"
"""The annotations with the user who wrote the release by `sluice`, and why."""
BY_BRAKE = "by spec.brake of the Rollout"
BY_BRAKE_OR_POLICY = f"{BY_BRAKE}, or by autoUpgrade of the policy"
BY_CHECKED_BRAKE = "by setting spec.brake of the Rollout to None"
BY_RELEASE = "by spec.release of the Rollout"
"""How a wait says that people end a brake or a halt; the command says by which of its verbs."""
SHORT_TARGET = 8
"""How many digits of a target are shown to people."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class Brake(OpenEnum):
    """Pause: no node starts; nodes in flight finish. Freeze: no node moves, and timeouts stop."""

    NONE = "None"
    PAUSE = "Pause"
    FREEZE = "Freeze"


class RolloutPhase(OpenEnum):
    """The phase of a rollout."""

    PROVING = "Proving"
    PROVEN = "Proven"
    HALTED = "Halted"
    COMPLETE = "Complete"
    NO_NODES = "NoNodes"
    """The policy selects no node with GPUs: there is nothing to do, and nothing is done yet."""
    POLICY_DELETED = "PolicyDeleted"
    """There is no policy any more: nothing starts, and nodes in flight finish."""


IDLE_PHASES = frozenset({RolloutPhase.COMPLETE, RolloutPhase.NO_NODES})
"""There is nothing to start."""


class Release(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A person's acceptance of failures of a target, which ends the target's halt."""

    target: str
    failures: Count


class RolloutSpec(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The part of a Rollout that people write."""

    brake: Brake = Brake.NONE
    release: Release | None = None


class InFlight(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A node whose upgrade was granted and has not ended."""

    node: str
    """The node's name."""
    token: Token
    """The token of the operation."""
    target: str
    """The target of the upgrade."""
    since: float
    """When the upgrade was granted, in Unix seconds."""
    outside: bool = False
    """Whether the node counts neither for its target nor toward `maxParallelUpgrades`."""
    validates: bool = False
    """Whether the node is only validated again and stays available."""


class Vanished(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A node whose Node was deleted while its driver was changed, so that its end is not known."""

    node: str
    """The node's name."""
    since: float
    """When its upgrade was granted, in Unix seconds."""


class TargetRecord(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The history of one target in a pool, kept until the target is proven and complete."""

    threshold: Count
    """How many validated nodes prove the target, and how many failures halt it."""
    accepted: Count = 0
    """How many failures a person accepted."""
    failed: tuple[str, ...] = ()
    """UIDs of nodes that were healthy and failed on the target. Never removed."""
    validated: tuple[str, ...] = ()
    """UIDs of nodes that were validated, up to the threshold."""
    proven: bool = False
    """Whether enough nodes proved the target."""
    proven_at: float = 0.0
    """When the target was last proven, in Unix seconds; the most recent one is the last-good
    target."""
    complete: bool = False
    """Whether the target was proven and complete when last wanted; kept only while last-good."""
    halted_because: str = ""
    """Why no node starts on the target."""
    vanished: dict[str, Vanished] = {}
    """By UID: nodes whose Node was deleted after their start, before the target was proven."""

    @property
    def harmed(self) -> frozenset[str]:
        """UIDs of the nodes that failed or, while the target is not proven, vanished."""
        vanished = () if self.proven else self.vanished
        return frozenset((*self.failed, *vanished))

    @property
    def is_halted(self) -> bool:
        """Whether it harmed as many nodes as is allowed."""
        return len(self.harmed) >= self.accepted + self.threshold

    @property
    def is_halted_by_vanished(self) -> bool:
        """Whether it would not be halted by the failures alone."""
        return self.is_halted and len(self.failed) < self.accepted + self.threshold


class Counts(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Counts of the pool's nodes by state."""

    total: Count = 0
    """All nodes of the pool."""
    done: Count = 0
    """Nodes with the wanted driver, validated."""
    in_flight: Count = 0
    """Nodes that are in an upgrade."""
    failed: Count = 0
    """Nodes that failed."""
    skipped: Count = 0
    """Nodes that a person excluded."""
    excluded: Count = 0
    """Nodes that cannot be upgraded."""
    waiting: Count = 0
    """Nodes that have not started. Nodes in flight, which may wait too, are not among them."""
    unavailable: Count = 0
    """Nodes that are unavailable for any reason; those that were granted a start count before they
    begin."""
    limit: Count = 0
    """How many nodes may be unavailable."""


def braked_state(brake: Brake) -> str:
    return {Brake.PAUSE: "paused", Brake.FREEZE: "frozen"}.get(brake, "held")


def braked(pool: str, brake: Brake, *, by: str = "", reason: str = "") -> str:
    """Return which brake holds a pool, who set it, and why, as far as known."""
    who, why = f" by {by}" if by else "", f": {reason}" if reason else ""
    return f"Rollout {pool} is {braked_state(brake)}{who} (spec.brake: {brake.value}){why}"


def release_command(pool: str, version: str, failures: int | None = None) -> str:
    """Return the command that accepts so many failures, or those that there are by then."""
    number = "" if failures is None else f" --failures {failures}"
    return f"sluice upgrade release {version} {pool}{number}"


def left_out(*, skipped: int, excluded: int) -> str:
    """Return how many nodes a rollout leaves out, and why; empty: none."""
    counts = ((skipped, "skipped"), (excluded, "excluded"))
    parts = [f"{count} {word}" for count, word in counts if count]
    return f"left out: {', '.join(parts)}" if parts else ""


class ConditionType(OpenEnum):
    """The conditions of a Rollout."""

    COMPLETE = "Complete"
    """There are nodes, and each has the driver that its policy wants, or is skipped or excluded."""
    HALTED = "Halted"
    """The target failed as often as is allowed."""
    PAUSED = "Paused"
    """No node starts, for the reason named."""
    READY = "Ready"
    """Nothing is left to do, or nothing that starts without a person who asked for that."""
    RECONCILING = "Reconciling"
    """The rollout goes on, or waits for what may end by itself."""
    STALLED = "Stalled"
    """The rollout goes on only when a person acts: to wait for it is in vain."""


class ConditionStatus(OpenEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"


class RolloutCondition(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A Kubernetes condition, for `kubectl wait`."""

    type: ConditionType
    """The type of the condition."""
    status: ConditionStatus
    """Whether the condition holds."""
    reason: str
    """The reason in one word."""
    last_transition_time: str
    """When the status last changed."""
    message: str = ""
    """The reason in a sentence."""
    observed_generation: Count = 0
    """The generation of spec that the condition refers to."""


class RolloutStatus(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The part that the scheduler writes; starts are granted here before any node changes."""

    version: str = ""
    """The version of the target's driver, for people: several targets can have the same."""
    target: str = ""
    """The digest of the wanted driver."""
    short_target: str = ""
    """The first digits of the target, for people."""
    phase: RolloutPhase = RolloutPhase.PROVING
    """The phase of the rollout."""
    progress: str = ""
    """How many nodes are done of how many, such as 3/12, for people."""
    eta: str = ""
    """When the rollout ends at its pace so far. Empty: not known, for instance while a node in
    flight waits for a job, a disruption budget or a person. It changes no decision, and is written
    with other changes."""
    because: str = ""
    """Why nothing starts, or how many nodes a complete rollout left out; otherwise empty."""
    epoch: Epoch = 0
    """The epoch of the scheduler that wrote last."""
    base: Count = 0
    """The pool's number of nodes at the first grant, to which percentages refer."""
    last_good: str = ""
    """The most recently proven target that is not halted."""
    frozen_since: float | None = None
    """When the rollout was frozen, in Unix seconds."""
    frozen_seconds: float = 0.0
    """Total seconds of earlier freezes."""
    in_flight: dict[str, InFlight] = {}
    """Nodes whose upgrade was granted and has not ended, by UID."""
    targets: dict[str, TargetRecord] = {}
    """All targets that are open, halted or last-good, by target."""
    counts: Counts = Counts()
    """Counts of the pool's nodes by state."""
    conditions: tuple[RolloutCondition, ...] = ()
    """The conditions of the rollout, one of each type."""
    observed_generation: Integer = 0
    """The generation of spec that the status refers to; -1 before the first."""

    @property
    def is_complete(self) -> bool:
        """Whether all nodes have the driver, though some may be away for something else."""
        return self.phase is RolloutPhase.COMPLETE or any(
            (each.type, each.status) == (ConditionType.COMPLETE, ConditionStatus.TRUE)
            for each in self.conditions
        )
