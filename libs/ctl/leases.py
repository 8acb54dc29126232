"""The lease of a person on a node: what shows it, and what takes it and returns it. Pure."""

from collections.abc import Iterable
from typing import Any

from libs.contracts.gpus import GPU_RESOURCES
from libs.contracts.message import MalformedMessage, decode, encode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    LeaseOwner,
    NodeLease,
)
from libs.contracts.queries import HeldNode
from libs.ctl.edits import Edit, record_of
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import clock_time, plain, plural, some
from libs.kube.views import MIRROR_ANNOTATION, Metadata, Node, Pod

_LATEST = 1e11
"""A time that can still be shown; people may write any number."""
_UNREADABLE = "cannot be read"
_OVER = ("Succeeded", "Failed")
"""Phases of pods whose containers have ended."""


def lease_of(metadata: Metadata, key: str = LEASE_ANNOTATION) -> NodeLease | str | None:
    """Return the lease or the claim; text if it is unreadable; None for one of an earlier Node."""
    text = metadata.annotations.get(key, "")
    try:
        lease = decode(NodeLease, text.encode()) if text else None
    except MalformedMessage:
        return _UNREADABLE
    return lease if lease is not None and lease.node_uid == metadata.uid else None


def held_of(metadata: Metadata) -> HeldNode | None:
    """Return the lease that a person has on the node, or waits for."""
    lease = lease_of(metadata)
    claim = lease_of(metadata, LEASE_CLAIM_ANNOTATION)
    if isinstance(lease, NodeLease) and lease.owner is LeaseOwner.HUMAN:
        return _held(metadata.name, lease, waits=False)
    if isinstance(claim, NodeLease):
        return _held(metadata.name, claim, waits=lease is not None)
    return None


def _held(node: str, lease: NodeLease, *, waits: bool) -> HeldNode:
    return HeldNode(node=node, who=lease.who, since=lease.since, reason=lease.reason, waits=waits)


def describe(held: HeldNode) -> str:
    """Return who has a node, since when, why, and how that ends."""
    ends = "withdrawn by" if held.waits else "ends with"
    return f"{holder_text(held)}; {ends} `sluice lease return {held.node}`"


def holder_text(held: HeldNode) -> str:
    """Return who has a node, since when, and why."""
    who = held.who or "a person"
    since = f"since {clock_time(held.since)} UTC" if 0 < held.since < _LATEST else "for a while"
    reason = f": {held.reason}" if held.reason else ""
    if held.waits:
        return f"{who} waits {since} for the operation on the node to end{reason}"
    return f"{who} has the node {since}{reason}"


def take(metadata: Metadata, *, who: str, reason: str, at: float) -> Edit:
    """Take the lease of a node at rest; of one in flight, claim it."""
    name = metadata.name
    lease = lease_of(metadata)
    if _UNREADABLE in (lease, lease_of(metadata, LEASE_CLAIM_ANNOTATION)):
        raise Failure(
            ExitCode.REFUSED,
            f"the lease of {name} cannot be read, so nobody can take it; end it first with"
            f" `sluice lease return {name}`",
        )
    held = held_of(metadata)
    if held is not None and held.who != plain(who):
        raise Failure(ExitCode.REFUSED, f"{name} is not free: {describe(held)}")
    if held is not None:
        return Edit(done=f"unchanged: {describe(held)}")
    record = record_of(metadata)
    taken = NodeLease(
        node_uid=metadata.uid,
        owner=LeaseOwner.HUMAN,
        token=record.token if record is not None else 0,
        since=at,
        who=plain(who),
        reason=plain(reason),
    )
    if lease is None:
        return Edit(
            done=f"{name} is yours: nothing starts on it, and it counts as unavailable, until"
            f" `sluice lease return {name}`",
            patch=_annotations({LEASE_ANNOTATION: encode(taken).decode()}),
        )
    return Edit(
        done=f"{name} is in an operation, which ends first: the node is yours from then on, and"
        f" `sluice why {name}` shows when",
        patch=_annotations({LEASE_CLAIM_ANNOTATION: encode(taken).decode()}),
    )


def is_taken(metadata: Metadata) -> bool:
    """Whether a person has the node already, and does not wait for it."""
    held = held_of(metadata)
    return held is not None and not held.waits


def may_be_pulled(node: Node, pods: Iterable[Pod]) -> str:
    """Return whether a machine may be switched off, by the pods that are bound to its node."""
    name = node.metadata.name
    running = [each for each in pods if each.status.phase not in _OVER and not _stays(each)]
    if not running:
        cordon = "" if node.spec.unschedulable else f"; `kubectl cordon {name}` keeps it so"
        return f"You may pull it: no pods run on it, except those of DaemonSets{cordon}"
    with_gpus = sum(map(_uses_gpu, running))
    all_use = with_gpus == len(running)
    count = f"{plural(len(running), 'pod')}{' with GPUs' if all_use else ''}"
    gpus = f", {with_gpus} of them with GPUs" if with_gpus and not all_use else ""
    names = some(sorted(each.metadata.key for each in running))
    drain = f"`kubectl drain {name} --ignore-daemonsets` evicts"
    them = "it" if len(running) == 1 else "them"
    run = "runs" if len(running) == 1 else "run"
    return f"Do not pull it yet: {count} {run} on it{gpus}: {names}; {drain} {them}"


def _stays(pod: Pod) -> bool:
    """Whether a drain leaves the pod alone: it belongs to a DaemonSet, or is the kubelet's own."""
    owners = pod.metadata.owner_references
    of_daemon_set = any(each.controller and each.kind == "DaemonSet" for each in owners)
    return of_daemon_set or MIRROR_ANNOTATION in pod.metadata.annotations


def _uses_gpu(pod: Pod) -> bool:
    return any(
        name.startswith(GPU_RESOURCES)
        for container in pod.spec.containers
        for name in (*container.resources.limits, *container.resources.requests)
    )


def give_back(metadata: Metadata, *, who: str) -> Edit:
    """End the lease of a person on a node, or the claim of one."""
    name, held = metadata.name, held_of(metadata)
    lease = lease_of(metadata)
    ended = [
        key for key in (LEASE_ANNOTATION, LEASE_CLAIM_ANNOTATION) if _is_persons(metadata, key)
    ]
    if not ended:
        if isinstance(lease, NodeLease):
            raise Failure(
                ExitCode.REFUSED,
                f"the lease of {name} belongs to an operation ({lease.owner.value}), which ends it;"
                f" `sluice why {name}` shows what it waits for",
            )
        return Edit(done=f"no person has {name}; unchanged")
    risk = f"{name} is drained and upgraded if its pool wants another driver"
    if held is None:
        risk = f"the lease of {name} cannot be read, so nobody knows who has the node; {risk}"
    elif held.who != plain(who):
        risk = f"{describe(held)}, and may be at work on it; {risk}"
    elif held.waits:
        risk = ""
    return Edit(
        done=f"{name} is returned: operations start on it again",
        patch=_annotations(dict.fromkeys(ended)),
        risk=risk,
    )


def _is_persons(metadata: Metadata, key: str) -> bool:
    """Whether a person may end what is there: not the lease of an operation."""
    lease = lease_of(metadata, key)
    if isinstance(lease, NodeLease):
        return key == LEASE_CLAIM_ANNOTATION or lease.owner is LeaseOwner.HUMAN
    return lease is not None


def _annotations(changes: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"annotations": changes}}
