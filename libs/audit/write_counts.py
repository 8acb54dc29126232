"""I10: limits on our writes per node and attempt in runs without injected faults, and on repeats.

An attempt is everything under one token (docs/states.md#words). Its writes under the lease, and
those at rest afterwards, have the same limit each. The write that marks a node `upgrade-required`
counts towards the attempt that follows.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from libs.audit.case import AuditCase, AuditFinding, Violation, revision_violation, write_violation
from libs.audit.clocks import SKEW_SECONDS
from libs.audit.nodes import ReplayedNode
from libs.audit.timeline import OURS
from libs.contracts import rollout
from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, MIG_STATE_LABEL, UpgradeState

WRITES: Final = 8
CONFLICTS: Final = 4
WRITES_OF_OTHERS: Final = 6

WAITS: Final = "GPUDriverUpgradeWaits"
"""The reason of an Event about a wait, whose message begins with the code."""
WAIT_SECONDS: Final = 3500.0
"""An hour, less the time for which an Event may have waited to be written."""

REPEATS: Final = 20
REPEAT_SECONDS: Final = 10.0
"""At most so many equal requests in so many seconds."""

Key = TypeVar("Key")


class _Request(NamedTuple):
    manager: str
    verb: str
    kind: str
    name: str
    """With its namespace."""


class _Attempt(NamedTuple):
    uid: str
    token: int
    leased: bool


def _attempt(uid: str, *states: ReplayedNode) -> _Attempt:
    leases = [state.upgrade.token for state in states if state.upgrade]
    records = [state.record.token for state in states if state.record]
    return _Attempt(uid, max(leases or records, default=0), bool(leases))


def _exceeds(counts: Counter[Key], key: Key, limit: int) -> bool:
    """Count another occurrence, and report whether it is the first beyond the limit."""
    counts[key] += 1
    return counts[key] == limit + 1


def writes(case: AuditCase) -> Iterator[AuditFinding]:
    """Count the committed writes to Nodes: the scheduler's, and those of our other services."""
    own: Counter[_Attempt] = Counter()
    marked: set[str] = set()
    others: Counter[tuple[str, int]] = Counter()
    for change in case.timeline.changes:
        if not change.revision.changed:
            continue
        attempt, problem = _attempt(change.node.uid, change.before, change.after), ""
        if change.by_scheduler:
            if change.new_state == UpgradeState.UPGRADE_REQUIRED and not attempt.leased:
                marked.add(attempt.uid)
            elif attempt.leased and attempt.uid in marked:
                marked.discard(attempt.uid)
                own[attempt] += 1
            if _exceeds(own, attempt, WRITES):
                problem = f"the scheduler wrote to it more than {WRITES} times"
        elif (
            change.revision.manager.startswith(OURS)
            and attempt.token
            and _exceeds(others, attempt[:2], WRITES_OF_OTHERS)
        ):
            problem = f"our other services wrote to it more than {WRITES_OF_OTHERS} times"
        if problem:
            message = f"{change.node.name}: {problem} in attempt {attempt.token}"
            yield write_violation("I10", change, message)


def conflicts(case: AuditCase) -> Iterator[AuditFinding]:
    """Count the writes of the scheduler to Nodes that met a conflict."""
    counts: Counter[_Attempt] = Counter()
    for position, revision, uid in case.timeline.conflicts:
        node = case.timeline.nodes.get(uid)
        if node is None or revision.manager != MANAGER:
            continue
        attempt = _attempt(uid, node.at(position))
        if _exceeds(counts, attempt, CONFLICTS):
            message = f"{node.name}: more than {CONFLICTS} conflicts in attempt {attempt.token}"
            yield Violation(invariant="I10", node=node.name, time=revision.time, message=message)


def evictions(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that each pod is evicted at most once."""
    evicted: Counter[str] = Counter()
    for revision in case.revisions:
        granted = revision.verb == Verb.EVICT and 200 <= revision.code < 300
        ours = revision.uid and revision.manager.startswith(OURS)
        if granted and ours and _exceeds(evicted, revision.uid, 1):
            message = f"pod {revision.namespace}/{revision.name} was evicted more than once"
            yield revision_violation("I10", revision, message)


def deletions(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that each pod is deleted at most once."""
    deleted: Counter[str] = Counter()
    for revision in case.revisions:
        granted = revision.verb == Verb.DELETE and 200 <= revision.code < 300
        ours = revision.kind == "Pod" and revision.uid and revision.manager.startswith(OURS)
        if granted and ours and _exceeds(deleted, revision.uid, 1):
            message = f"pod {revision.namespace}/{revision.name} was deleted more than once"
            yield revision_violation("I10", revision, message)


def repeats(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that no write of ours to one object is repeated as fast as it is answered.

    This holds in runs with injected faults too. Leases, and the status of a Rollout as it changes,
    are not counted.
    """
    recent: dict[_Request, deque[float]] = defaultdict(deque)
    reported: set[_Request] = set()
    for revision in case.revisions:
        changes_status = revision.kind == rollout.KIND and revision.changed
        if not revision.manager.startswith(OURS) or revision.kind == "Lease" or changes_status:
            continue
        name = f"{revision.namespace}/{revision.name}".removeprefix("/")
        request = _Request(revision.manager, revision.verb, revision.kind, name)
        times = recent[request]
        if times and revision.time < times[-1] - SKEW_SECONDS:
            times.clear()  # the clock went back: how long ago the others were is unknown
        times.append(revision.time)
        while times[0] <= revision.time - REPEAT_SECONDS:
            times.popleft()
        if len(times) > REPEATS and request not in reported:
            reported.add(request)
            message = (
                f"{request.manager} sent {request.verb} of {request.kind} {name} more than"
                f" {REPEATS} times in {REPEAT_SECONDS:.0f} s"
            )
            node = revision.name if revision.kind == "Node" else ""
            yield revision_violation("I10", revision, message, node=node)


def kubernetes_events(case: AuditCase) -> Iterator[AuditFinding]:
    """Check that there is at most one Kubernetes Event for each state of a Node.

    Its MIG state is one, too. Of a wait there is one per cause and hour, whoever leads.
    """
    states: Counter[str] = Counter()
    for change in case.writes:
        is_divided = bool(change.labels.get(MIG_STATE_LABEL))
        states[change.node.name] += (change.new_state is not None) + is_divided
    events: Counter[str] = Counter()
    told: dict[tuple[str, str], float] = {}
    for revision in case.revisions:
        about, name, reason, text = (
            str(revision.changed.get(path, (None, ""))[1])
            for path in ("involvedObject.kind", "involvedObject.name", "reason", "message")
        )
        created = revision.kind == "Event" and revision.code == 201
        if not created or about != "Node" or revision.manager != MANAGER:
            continue
        if reason == WAITS:
            key = name, text.partition(":")[0]
            elapsed = revision.time - told.get(key, float("-inf"))
            if elapsed + case.clocks.put_back() < WAIT_SECONDS:
                message = f"{name} has more than one Kubernetes Event within an hour about {key[1]}"
                yield revision_violation("I10", revision, message, node=name)
            told[key] = revision.time
        elif _exceeds(events, name, states[name]):
            message = f"{name} had {states[name]} states, but has more Kubernetes Events"
            yield revision_violation("I10", revision, message, node=name)
