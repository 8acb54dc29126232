"""What events say of a Rollout: a change of its phase, and what people set. Pure."""

from typing import Final

from libs.contracts.events import RolloutEvent
from libs.contracts.rollout import BY_RELEASE, Brake, RolloutPhase
from libs.contracts.waits import BY_RETRY
from libs.contracts.words import plural
from libs.kube.authors import Author
from libs.rollout.pool.conditions import proof_text
from services.scheduler.resources import Rollout

_NOT_RECORDED: Final = "somebody, who is not recorded"
"""The author of a removal: it leaves no trace in the object."""
_BRAKES: Final = {Brake.NONE: "resumed", Brake.PAUSE: "paused", Brake.FREEZE: "frozen"}


def phase_text(change: RolloutEvent, *, threshold: int) -> str:
    """Return what a new phase or target means; `threshold` nodes prove the target."""
    if change.after == RolloutPhase.NO_NODES:
        return change.because
    if not change.target:
        return "no driver is wanted on the nodes"
    texts = {
        RolloutPhase.PROVING: proof_text(threshold),
        RolloutPhase.PROVEN: "is proven; the others may start within the limits of the policy",
        RolloutPhase.POLICY_DELETED: "stays on its nodes, because the policy was deleted",
        RolloutPhase.COMPLETE: f"is complete: on {change.done} of {change.total} nodes",
        RolloutPhase.HALTED: f"is halted until a person releases it: {change.because}",
    }
    return f"{change.target} {texts.get(RolloutPhase(change.after), change.after)}"


def brake_text(rollout: Rollout) -> str:
    """Return what the brake is now, who set it, and why."""
    brake = rollout.spec.brake
    done = _BRAKES.get(brake, "braked")
    return _signed(f"{done} by", f"(spec.brake: {brake.value})", rollout.brake_author)


def release_text(rollout: Rollout) -> str:
    """Return which failures are accepted now, by whom, and why."""
    accepted = released(rollout)
    if not accepted:
        return "spec.release was removed: no failure is accepted any more"
    return _signed(f"{accepted} accepted by", "(spec.release)", rollout.release_author)


def released(rollout: Rollout) -> str:
    """Return which failures a person has accepted; empty: none."""
    release = rollout.spec.release
    if release is None:
        return ""
    failures = plural(release.failures, "failure")
    return f"{failures} of {release.target}"


def with_commands(who: str, *, node: str, release: str) -> str:
    """Return who can end a wait, with the commands in place of what they write."""
    if release:
        who = who.replace(BY_RELEASE, f"by `{release}`")
    return who.replace(BY_RETRY, f"by `sluice upgrade retry {node}`")


def _signed(done: str, field: str, author: Author | None) -> str:
    name = _NOT_RECORDED if author is None else author.name
    reason = f": {author.reason}" if author is not None and author.reason else ""
    return f"{done} {name} {field}{reason}"
