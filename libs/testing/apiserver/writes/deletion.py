"""Deletion: at once, after a pod's grace period, or when the last finalizer is removed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    details,
    invalid_options,
    invalid_syntax,
    not_simulated,
)
from libs.testing.apiserver.objects.json import JsonObject, decoded, encoded, get_map, get_strings
from libs.testing.apiserver.status import StatusError, unsupported
from libs.testing.apiserver.store import StoredObject
from libs.testing.apiserver.writes.admission import Strategies, WriteOutcome, WriteTarget
from libs.testing.apiserver.writes.object_writer import ObjectWriter, format_time

_POLICIES = ("Background", "Orphan")
_ORPHAN = "orphan"
_FINISHED = ("Succeeded", "Failed")


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    preconditions: _Preconditions | None = None
    dry_run: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.dry_run:
            raise not_simulated("dry runs")

    def without_revision(self) -> "DeleteOptions":
        if self.preconditions is None:
            return self
        preconditions = msgspec.structs.replace(self.preconditions, resource_version=None)
        return msgspec.structs.replace(self, preconditions=preconditions)


def delete_options(body: bytes, query: Mapping[str, str]) -> DeleteOptions:
    """Read the options from the body, or without one from the query."""
    try:
        options = msgspec.json.decode(body or b"{}", type=DeleteOptions)
    except msgspec.DecodeError as error:
        raise bad_request(f"DeleteOptions cannot be read: {error}") from error
    grace, policy = query.get("gracePeriodSeconds", ""), query.get("propagationPolicy")
    if not body:
        if grace and not grace.removeprefix("-").isdecimal():
            raise bad_request(invalid_syntax(grace))
        options = msgspec.structs.replace(
            options,
            grace_period_seconds=int(grace) if grace else None,
            propagation_policy=policy,
        )
    if options.propagation_policy == "Foreground":
        raise not_simulated("foreground deletion")
    if options.propagation_policy not in (None, *_POLICIES):
        cause = unsupported("propagationPolicy", options.propagation_policy, (*_POLICIES, "nil"))
        raise invalid_options("DeleteOptions", [cause])
    return options


class Deleter:
    def __init__(self, writer: ObjectWriter, *, strategies: Strategies) -> None:
        self._writer = writer
        self._strategies = strategies

    def delete(
        self, write: WriteTarget, live: StoredObject, options: DeleteOptions
    ) -> WriteOutcome:
        """Delete the object, or mark it for deletion while finalizers or grace hold it."""
        kind = write.kind
        check_preconditions(kind, live, options)
        if kind.resource == "namespaces":
            raise not_simulated("the deletion of namespaces")
        obj = decoded(live.raw)
        if kind.resource == "pods":
            obj, grace_over = self._with_grace(obj, options)
        else:
            grace_over = True
        obj = _with_policy_finalizer(obj, options)
        if self._strategies(kind).has_finalizers(obj):
            return self._writer.put(write, live, self._marked(obj, grace=0))
        if not grace_over:
            return self._writer.put(write, live, obj)
        return self._remove(write, live, obj)

    def _remove(self, write: WriteTarget, live: StoredObject, obj: JsonObject) -> WriteOutcome:
        """Remove the object; a pod is stored with its grace over first."""
        if write.kind.resource == "pods":
            before = decoded(live.raw)
            live = self._writer.mark(write, live, obj)
            outcome = self._writer.remove(write, live)
            return msgspec.structs.replace(outcome, before=before)
        returned = self._strategies(write.kind).returns_deleted
        return self._writer.remove(write, live, raw=b"" if returned else _success(write.kind, live))

    def _with_grace(self, obj: JsonObject, options: DeleteOptions) -> tuple[JsonObject, bool]:
        """Return the pod with its deadline, and whether its grace is over."""
        metadata: JsonObject = obj["metadata"]
        requested = options.grace_period_seconds
        if metadata.get("deletionTimestamp"):
            remaining = metadata.get("deletionGracePeriodSeconds")
            if remaining is None:
                return obj, True
            if requested is None or requested >= remaining:
                return obj, not remaining
            since = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - remaining
            return self._with_deadline(obj, since, max(requested, 0)), requested <= 0
        grace = _grace(obj, requested)
        return self._marked(obj, grace=grace), not grace

    def _with_deadline(self, obj: JsonObject, since: float, grace: int) -> JsonObject:
        deletion = {
            "deletionTimestamp": format_time(since + grace),
            "deletionGracePeriodSeconds": grace,
        }
        return {**obj, "metadata": {**obj["metadata"], **deletion}}

    def _marked(self, obj: JsonObject, *, grace: int) -> JsonObject:
        metadata: JsonObject = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            return obj
        marked = self._with_deadline(obj, self._writer.time(), grace)
        if metadata.get("generation"):
            marked["metadata"]["generation"] = metadata["generation"] + 1
        return marked


def check_preconditions(kind: ResourceKind, live: StoredObject, options: DeleteOptions) -> None:
    """Refuse another uid or resourceVersion than the options name."""
    expected = options.preconditions or _Preconditions()
    uid, revision = expected.uid, expected.resource_version
    if uid and uid != live.uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({live.uid}). "
            "The object might have been deleted and then recreated"
        )
    elif revision and revision != str(live.revision):
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the "
            f"ResourceVersion in record ({live.revision}). The object might have been modified"
        )
    else:
        return
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    raise StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified} "{live.name}": {why}',
        details={**details(kind, live.name), "kind": kind.kind},
    )


def _grace(pod: Mapping[str, Any], requested: int | None) -> int:
    spec = get_map(pod, "spec")
    if not spec.get("nodeName") or get_map(pod, "status").get("phase") in _FINISHED:
        return 0
    grace = requested if requested is not None else spec.get("terminationGracePeriodSeconds")
    return 1 if grace is not None and grace < 0 else grace or 0


def _with_policy_finalizer(obj: JsonObject, options: DeleteOptions) -> JsonObject:
    """Return the object with the finalizer that stands for the propagation policy."""
    policy = options.propagation_policy
    if policy is None:
        return obj
    metadata: JsonObject = obj["metadata"]
    known = get_strings(metadata, "finalizers")
    finalizers = [each for each in known if each != _ORPHAN]
    if policy == "Orphan":
        finalizers.append(_ORPHAN)
    if finalizers == known:
        return obj
    return {**obj, "metadata": {**metadata, "finalizers": finalizers}}


def _success(kind: ResourceKind, live: StoredObject) -> bytes:
    return encoded(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {**details(kind, live.name), "uid": live.uid},
        }
    )
