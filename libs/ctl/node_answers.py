"""What is known of one node: what Kubernetes shows, what the scheduler says, what is over. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL, SKIP_LABEL, STATE_LABEL
from libs.contracts.queries import WhyAnswer
from libs.contracts.rollout import Brake, RolloutSpec, RolloutStatus, release_command
from libs.contracts.waits import WAITS_REASON, WaitCode
from libs.ctl.answers import NodeAnswer, NodeFact
from libs.ctl.cordons import cordoned_by, skipped_by
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import parse_time
from libs.fleet.names import name_versions, version_name
from libs.fleet.node import fleet_node, with_wanted
from libs.fleet.pools import resume_command
from libs.fleet.status import Source
from libs.kube import views
from libs.policy.validation import PRESENT_LABEL

_UNKNOWN: Final = RolloutStatus()
_UNMANAGED: Final = (
    f"no GPU has been found on it: it has no label {PRESENT_LABEL}, which the discovery agent"
    " writes once it runs there and sees one"
)


def node_answer(
    node: views.Node,
    events: Sequence[NodeFact],
    *,
    why: WhyAnswer | None,
    unmanaged: str = "",
    ended_by: str = "",
    rollout: RolloutStatus = _UNKNOWN,
    sources: tuple[Source, ...],
) -> NodeAnswer:
    """Return all that is known of one node; `rollout` is the status of its pool, if known."""
    ready = {each.type: each.status for each in node.status.conditions}.get("Ready")
    shown = {
        key: value
        for key, value in sorted(node.metadata.labels.items())
        if key in (STATE_LABEL, DRIVER_LABEL, SKIP_LABEL) or key.startswith("nvidia.com/gpu.health")
    }
    conditions = tuple(
        NodeFact(
            name=f"{each.type}={each.status}",
            text=": ".join(filter(None, (each.reason, each.message))),
            at=each.last_transition_time or "",
        )
        for each in node.status.conditions
    )
    return NodeAnswer(
        node=with_wanted(fleet_node(node.metadata, cordoned=node.spec.unschedulable), rollout),
        ready=None if ready is None else ready == "True",
        cordoned=node.spec.unschedulable,
        cordon_set=cordoned_by(node),
        skip_set=skipped_by(node),
        labels=shown,
        conditions=conditions,
        events=tuple(_judged(events, why)),
        why=why,
        unmanaged=unmanaged,
        ended_by=ended_by,
        sources=sources,
    )


def why_unmanaged(node: views.Node, answer: object) -> str:
    """Return why a scheduler that does not know a node does nothing on it; empty: not known."""
    has_sign = not {PRESENT_LABEL, STATE_LABEL, DRIVER_LABEL}.isdisjoint(node.metadata.labels)
    is_unknown = isinstance(answer, Failure) and answer.code is ExitCode.NOT_FOUND
    return _UNMANAGED if is_unknown and not has_sign else ""


def _judged(events: Sequence[NodeFact], why: WhyAnswer | None) -> Iterator[NodeFact]:
    """Yield the Events; those about waits that are over are marked.

    Over is a wait with another code than the present one, and one that began before it if the node
    changed in between: without a change, another leader may have told of the present one.
    """
    changes = [at for event in events if (at := parse_time(event.at)) is not None]
    changes += why.history_at if why is not None else ()
    for event in events:
        is_over = why is not None and event.name == WAITS_REASON and _is_over(event, why, changes)
        yield msgspec.structs.replace(event, is_over=is_over)


def _is_over(event: NodeFact, why: WhyAnswer, changes: Iterable[float]) -> bool:
    wait, at = why.wait, parse_time(event.at)
    if wait is None or event.text.partition(":")[0] != wait.code.value:
        return True
    # The time of an Event is one of whole seconds.
    return at is not None and any(at + 1 <= change <= wait.since for change in changes)


def has_digest(why: WhyAnswer) -> bool:
    """Whether the sentences of an answer name a target, which people know by its version."""
    return with_versions(why, {}) != why


def with_versions(why: WhyAnswer, versions: Mapping[str, str]) -> WhyAnswer:
    """Replace targets by versions in the sentences of an answer."""
    replace = msgspec.structs.replace
    wait = why.wait
    return replace(
        why,
        wait=wait and replace(wait, detail=name_versions(wait.detail, versions)),
        history=tuple(name_versions(step, versions) for step in why.history),
    )


def ending_command(
    why: WhyAnswer, spec: RolloutSpec, status: RolloutStatus, versions: Mapping[str, str]
) -> str:
    """Return the command by which an administrator ends a node's wait; empty: none does."""
    code = why.wait.code if why.wait is not None else None
    if code in (WaitCode.PAUSED, WaitCode.FROZEN) and spec.brake is not Brake.NONE:
        return resume_command(why.pool)
    if code not in (WaitCode.HALTED, WaitCode.FAILED):
        return ""
    if target := _halted_target(why, status):
        version, failures = version_name(target, versions), len(status.targets[target].harmed)
        return release_command(why.pool, version, failures)
    return f"sluice upgrade retry {why.node}" if code is WaitCode.FAILED else ""


def _halted_target(why: WhyAnswer, status: RolloutStatus) -> str:
    """Return the halted target that a node waits for, or failed on; empty: none is halted.

    The target of the answer is that of the node's last attempt.
    """
    halted = [target for target, record in status.targets.items() if record.is_halted]
    if why.wait is None or why.wait.code is WaitCode.FAILED:
        return why.target if why.target in halted else ""
    named = [target for target in halted if target in why.wait.detail]
    wanted = [status.target] if status.target in halted else []
    return next(iter(named or wanted), "")
