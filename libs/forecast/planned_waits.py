"""Why a node does not move in the end of a play, in the words of a plan. Pure.

The engine says what is so at its moment. In a plan that moment lies ahead, unless it was so when
the plan was asked for, and nobody has seen a digest of a target that is not wanted yet.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import WaitCode
from libs.contracts.words import first_few, plural
from libs.policy.shapes import IntOrString
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Fleet

_MOST_NAMED: Final = 10
ALREADY: Final = "unavailable already"
"""In the words of a budget that is full before the rollout begins."""
_FULL: Final = "(maxUnavailable)"
"""What the engine's detail names if `maxUnavailable` is used up."""
_MORE_ROOM: Final = (
    "the author of the policy, by raising maxUnavailable; or an administrator, by bringing one of"
    " these nodes back"
)


class PlayEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The pool in the end of a play, as far as it keeps nodes from moving."""

    target: str
    versions: Mapping[str, str]
    """Of targets and their builds, by digest."""
    record: TargetRecord | None
    """What became of the target; None: nothing yet."""
    in_flight: tuple[str, ...]
    """Nodes on whose proof the others wait."""
    max_unavailable: IntOrString
    limit: int
    """The number of nodes that this is."""
    unavailable: Mapping[str, str]
    """Unavailable nodes, each with the reason."""
    were_unavailable: frozenset[str]
    """Those that were so before the play."""


def planned_wait(wait: Wait, end: PlayEnd) -> Wait:
    """Return the wait as a plan says it."""
    wait = _of_pool(wait, end)
    return replace(wait, detail=named(wait.detail, end.versions))


def _of_pool(wait: Wait, end: PlayEnd) -> Wait:
    record = end.record
    if wait.code is WaitCode.BUDGET and _FULL in wait.detail:
        return replace(wait, detail=_full_budget(end), who=_MORE_ROOM)
    if record is None or end.target not in wait.detail:
        return wait
    if wait.code is WaitCode.HALTED:
        failures = plural(len(record.harmed), "failure")
        detail = f"the rollout would halt after {failures} of {end.target}"
        return replace(wait, detail=detail)
    if wait.code is WaitCode.PROOF:
        return replace(wait, detail=_unproven(record, end))
    return wait


def _full_budget(end: PlayEnd) -> str:
    limit = f"{end.max_unavailable}"
    if limit != str(end.limit):
        limit = f"{limit}, which is {plural(end.limit, 'node')}"
    before = end.were_unavailable
    number = len(end.unavailable)
    if end.unavailable.keys() <= before:
        verb = f"is {ALREADY}" if number == 1 else f"are {ALREADY}"
        names = _with_reasons(end.unavailable)
    else:
        verb = "would be unavailable"
        names = _with_reasons(
            {
                name: f"{reason} already" if name in before else reason
                for name, reason in end.unavailable.items()
            }
        )
    return f"maxUnavailable is {limit}, and {plural(number, 'node')} {verb}: {names}"


def _unproven(record: TargetRecord, end: PlayEnd) -> str:
    failed = f", {len(record.failed)} failed" if record.failed else ""
    of = f"{len(record.validated)} of {plural(record.threshold, 'node')}"
    others = first_few(sorted(end.in_flight), _MOST_NAMED)
    going_on = f"; {others} would still be in progress" if others else ""
    return f"{end.target} would not be proven: validated on {of}{failed}{going_on}"


def _with_reasons(reasons: Mapping[str, str]) -> str:
    named = sorted(f"{name} ({reason})" for name, reason in reasons.items())
    return first_few(named, _MOST_NAMED)


# Versions in place of digests.


def versions_of(fleet: Fleet) -> dict[str, str]:
    """Return the versions that are known of targets and of their builds, by digest."""
    versions: dict[str, str] = {}
    for pool in fleet.pools.values():
        if pool.rollout is not None and (status := pool.rollout.status).version:
            versions[status.target] = status.version
        if pool.version:
            builds = pool.builds.get(pool.target, {}).values()
            digests = (pool.target, *(build.label for build in builds))
            versions |= dict.fromkeys(digests, pool.version)
    return {digest: version for digest, version in versions.items() if digest}


def named(text: str, versions: Mapping[str, str]) -> str:
    """Return the text with versions in place of digests."""
    for digest, version in versions.items():
        text = text.replace(digest, version)
    return text
