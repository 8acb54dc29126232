"""What a person's verb writes: decided from the object as it is now. Pure."""

from typing import Any

import msgspec

from libs.contracts.node import (
    REQUEST_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    NodeRequest,
    UpgradeState,
)
from libs.ctl.failures import ExitCode, Failure
from libs.fleet.records import is_in_flight, record_of
from libs.kube.views import Metadata


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A merge patch, what it means, and what it can do to nodes."""

    done: str
    """One sentence for people: what is written, or why nothing has to be."""
    patch: dict[str, Any] = {}
    """Empty: the object is as wanted."""
    risk: str = ""
    """What happens to nodes; empty if nothing is changed on them."""


def retry(metadata: Metadata) -> Edit:
    """Request another attempt on a node that is done or failed."""
    name, state = metadata.name, metadata.labels.get(STATE_LABEL, "")
    if state == UpgradeState.UPGRADE_REQUIRED:
        return Edit(done=f"{name} already waits for its upgrade; unchanged")
    if state not in (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED):
        found = f"its state is {state}" if state else "it has no upgrade state"
        why = f"{found}; only a done or failed node can be"
        if is_in_flight(metadata):
            why = f"an attempt is under way, and {found}; `sluice why {name}` shows it"
        raise Failure(ExitCode.REFUSED, f"{name} cannot be retried: {why}")
    labels = {STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value}
    return Edit(
        done=f"another attempt on {name} is requested",
        patch={"metadata": {"labels": labels}},
        risk=f"{name} is drained and upgraded",
    )


def skip(metadata: Metadata) -> Edit:
    """Keep a node out of upgrades; one in flight still finishes."""
    name = metadata.name
    if metadata.labels.get(SKIP_LABEL) == "true":
        return Edit(done=f"{name} is already skipped; unchanged")
    in_flight = "; the upgrade in flight still finishes" if is_in_flight(metadata) else ""
    return Edit(
        done=f"{name} is skipped: no upgrade starts on it{in_flight}",
        patch={"metadata": {"labels": {SKIP_LABEL: "true"}}},
    )


def unskip(metadata: Metadata) -> Edit:
    """Let upgrades start on a node again."""
    name = metadata.name
    if metadata.labels.get(SKIP_LABEL) != "true":
        return Edit(done=f"{name} is not skipped; unchanged")
    return Edit(
        done=f"{name} is not skipped any more",
        patch={"metadata": {"labels": {SKIP_LABEL: None}}},
        risk=f"{name} is drained and upgraded if its pool wants another driver",
    )


def adopt(metadata: Metadata) -> Edit:
    """Request that a node whose record is lost is managed again."""
    if _has_record(metadata):
        raise Failure(
            ExitCode.REFUSED,
            f"{metadata.name} is managed: its record is there, so there is nothing to adopt",
        )
    return _request(
        metadata,
        NodeRequest.ADOPT,
        risk=f"{metadata.name} is managed again, and validated or upgraded",
    )


def forget(metadata: Metadata) -> Edit:
    """Request that what Sluice wrote on a node is removed; refused for one in flight."""
    name = metadata.name
    if is_in_flight(metadata):
        raise Failure(
            ExitCode.REFUSED,
            f"{name} is in flight: it cannot be forgotten before its upgrade has ended",
        )
    failed = metadata.labels.get(STATE_LABEL) == UpgradeState.UPGRADE_FAILED
    if _has_record(metadata) and not failed:
        raise Failure(
            ExitCode.REFUSED,
            f"{name} is managed and has not failed; only a failed node, or one whose record is"
            " lost, can be forgotten",
        )
    return _request(
        metadata,
        NodeRequest.FORGET,
        risk=f"{name} begins anew, without its history; a cordon stays, its failure stays counted",
    )


def _request(metadata: Metadata, request: NodeRequest, *, risk: str) -> Edit:
    """Return the edit that asks the scheduler for something, once.

    A request that is not carried out yet is not replaced: nobody could tell which of the two was.
    """
    name, pending = metadata.name, metadata.annotations.get(REQUEST_ANNOTATION, "")
    if pending == request.value:
        return Edit(done=f"{name} already has the request {request.value}; unchanged")
    if pending:
        raise Failure(
            ExitCode.REFUSED,
            f"{name} has the request {pending!r}, which the scheduler has not carried out yet",
        )
    return Edit(
        done=f"the request {request.value} is set on {name}; the scheduler carries it out once",
        patch={"metadata": {"annotations": {REQUEST_ANNOTATION: request.value}}},
        risk=risk,
    )


def _has_record(metadata: Metadata) -> bool:
    return record_of(metadata) is not None
