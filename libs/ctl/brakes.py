"""The brake of a pool and the release of a halt, written with the user who did it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.contracts import rollout
from libs.contracts.rollout import (
    IDLE_PHASES,
    SHORT_TARGET,
    Brake,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import plain, plural
from libs.fleet.names import version_name
from libs.fleet.pools import Rollout, ending_of_halt
from libs.kube.authors import Author, brake_author
from libs.kube.views import Metadata

_SET: Final = {
    Brake.NONE: ("goes on", "is neither paused nor frozen"),
    Brake.PAUSE: ("is paused", "is already paused"),
    Brake.FREEZE: ("is frozen", "is already frozen"),
}
"""What is said of a pool whose brake is set, and of one that had it before."""
_MEANS: Final = {
    Brake.NONE: ": nodes start within the budget",
    Brake.PAUSE: ": no node starts, nodes in flight finish",
    Brake.FREEZE: ": no node moves, and timeouts stop",
}


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The user who writes, and why."""

    user: str
    reason: str = ""

    def annotations(self, user_key: str, reason_key: str) -> dict[str, Any]:
        """Return the metadata that tells others; an earlier reason goes."""
        return {"annotations": {user_key: plain(self.user), reason_key: plain(self.reason) or None}}


def set_brake(
    metadata: Metadata, spec: RolloutSpec, status: RolloutStatus, brake: Brake, *, by: Signature
) -> Edit:
    """Set the brake of a pool; to resume can drain nodes.

    Without a reason of its own, a freeze in place of a pause keeps that of the pause, and the
    reverse.
    """
    pool = metadata.name
    now, already = _SET[brake]
    means = _halted(pool, status) if brake is Brake.NONE else ""
    means = means or _MEANS[brake]
    if spec.brake is brake:
        return Edit(done=f"{pool} {already}{means}; unchanged")
    author = brake_author(metadata)
    before = "" if spec.brake is Brake.NONE else _set_before(spec.brake, author)
    risk = replaced = ""
    if brake is Brake.NONE:
        replaced = f"; ended: {before}"
        if status.phase not in IDLE_PHASES:
            risk = (
                f"this ends {before}; nodes of {pool} that are not done are drained and upgraded,"
                " within the budget"
            )
    elif before:
        replaced = f"; it replaces {before}"
        kept = "" if author is None else _reason_kept(spec.brake, author, by)
        by = msgspec.structs.replace(by, reason=by.reason.strip() or kept)
    metadata_patch = by.annotations(rollout.BRAKE_SET_BY, rollout.BRAKE_REASON)
    patch = {"metadata": metadata_patch, "spec": {"brake": brake.value}}
    return Edit(done=f"{pool} {now}{means}{replaced}", patch=patch, risk=risk)


def _set_before(brake: Brake, author: Author | None) -> str:
    """Return the brake that is set, by whom, and why, as far as that is recorded."""
    if author is None:
        return f"the {brake.value.lower()}"
    reason = f" ({author.reason})" if author.reason else ""
    return f"the {brake.value.lower()} by {author.name}{reason}"


def _reason_kept(brake: Brake, author: Author, by: Signature) -> str:
    """Return why a brake was set that is replaced without a reason; another's with the name."""
    if author.name == plain(by.user):
        return author.reason
    reason = f": {author.reason}" if author.reason else ""
    return f"after the {brake.value.lower()} by {author.name}{reason}"


def _halted(pool: str, status: RolloutStatus) -> str:
    """Return that the end of a brake does not end a halt, if there is one."""
    if status.phase is not RolloutPhase.HALTED:
        return ""
    driver, command = status.version, ending_of_halt(pool, status)
    until = f"`{command}`" if command else "it is released"
    return f", but driver {driver} is halted: no node starts on it until {until}"


def release(
    pool: str,
    status: RolloutStatus,
    target: str,
    version: str,
    failures: int,
    *,
    by: Signature,
) -> Edit:
    """Accept failures of a target, which ends its halt; refuse a number that would not."""
    record = status.targets.get(target)
    if record is None or not record.is_halted:
        raise Failure(
            ExitCode.REFUSED, f"{version} is not halted in {pool}: there is nothing to release"
        )
    needed = len(record.harmed) - record.threshold + 1
    if failures < needed:
        raise Failure(
            ExitCode.REFUSED,
            f"{pool} would stay halted: {plural(len(record.harmed), 'node')} failed on {version},"
            f" and the limit would be {failures + record.threshold}; accept"
            f" {plural(needed, 'failure')} at least",
        )
    more = failures + record.threshold - len(record.harmed)
    halt = "the next failure halts" if more == 1 else f"{more} more failures halt"
    again = f"{halt} the pool again"
    accepted = f"{plural(failures, 'failure')} of {version} {'is' if failures == 1 else 'are'}"
    return Edit(
        done=f"{pool} is released: {accepted} accepted; {again}",
        patch={
            "metadata": by.annotations(rollout.RELEASE_SET_BY, rollout.RELEASE_REASON),
            "spec": {"release": {"target": target, "failures": failures}},
        },
        risk=f"nodes of {pool} may be drained and upgraded to {version} again; {again}",
    )


class Halted(msgspec.Struct, frozen=True, kw_only=True):
    """A target that is halted in a pool."""

    pool: str
    target: str
    version: str
    record: TargetRecord

    def __str__(self) -> str:
        failed = plural(len(self.record.failed), "node")
        return f"{self.pool} --target {self.target[:SHORT_TARGET]} ({failed} failed)"


def halted_targets(rollouts: Iterable[Rollout], versions: Mapping[str, str]) -> list[Halted]:
    """Return all targets that are halted, by pool and target."""
    return [
        Halted(
            pool=rollout.metadata.name,
            target=target,
            version=version_name(target, versions),
            record=record,
        )
        for rollout in rollouts
        for target, record in sorted(rollout.status.targets.items())
        if record.is_halted
    ]


def choose_halted(halted: Sequence[Halted], version: str, *, pool: str, target: str) -> Halted:
    """Return the halted target that a version means; fail with a list if there are several."""
    found = [each for each in halted if each.version == version and pool in ("", each.pool)]
    chosen = [each for each in found if each.target.startswith(target)]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        known = ", ".join(sorted({f"{each.version} in {each.pool}" for each in halted}))
        raise Failure(
            ExitCode.NOT_FOUND,
            f"{version or repr(version)} is not halted{f' in {pool}' if pool else ''};"
            f" halted: {known or 'none'}",
        )
    listed = "; ".join(map(str, chosen or found))
    problem = "is several targets" if chosen else f"has no target {target!r}"
    raise Failure(ExitCode.WRONG_ARGUMENTS, f"{version} {problem}; choose one: {listed}")
