"""Deletes: at once, after a pod's grace, or when the last finalizer is gone."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    details,
    invalid_options,
    unsupported,
)
from libs.testing.apiserver.objects.encoding import decoded, encoded
from libs.testing.apiserver.objects.json_access import JsonObject, get_map, get_strings
from libs.testing.apiserver.requests.options import dry_run
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import StoredObject
from libs.testing.apiserver.writes.object_writer import ObjectWriter, format_time
from libs.testing.apiserver.writes.outcome import Strategies, WriteOutcome, WriteTarget

_POLICIES = ("Foreground", "Background", "Orphan")
_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_FINISHED = ("Succeeded", "Failed")
_PROTECTED = ("default", "kube-system")


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How something is to be deleted."""

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    preconditions: _Preconditions | None = None
    dry_run: tuple[str, ...] = ()

    def beyond_revision(self) -> "DeleteOptions":
        """The same, of whatever revision."""
        if self.preconditions is None:
            return self
        met = msgspec.structs.replace(self.preconditions, resource_version=None)
        return msgspec.structs.replace(self, preconditions=met)


def delete_options(body: bytes, query: Mapping[str, str]) -> DeleteOptions:
    """From the body, or else from the query."""
    try:
        given = msgspec.json.decode(body or b"{}", type=DeleteOptions)
    except msgspec.DecodeError as error:
        raise bad_request(f"DeleteOptions cannot be read: {error}") from error
    grace, policy = query.get("gracePeriodSeconds", ""), query.get("propagationPolicy")
    if not body:
        if grace and not grace.removeprefix("-").isdecimal():
            raise bad_request(f'strconv.ParseInt: parsing "{grace}": invalid syntax')
        given = msgspec.structs.replace(
            given,
            grace_period_seconds=int(grace) if grace else None,
            propagation_policy=policy,
            dry_run=("All",) if dry_run(query, options="DeleteOptions") else (),
        )
    if given.propagation_policy not in (None, *_POLICIES):
        told = f'"{given.propagation_policy}"'
        cause = unsupported("propagationPolicy", told, (*_POLICIES, "nil"))
        raise invalid_options("DeleteOptions", [cause])
    return given


class Deleter:
    """Takes objects away, by the strategies of their kinds."""

    def __init__(self, writer: ObjectWriter, *, strategies: Strategies) -> None:
        self._writer = writer
        self._strategies = strategies

    def delete(
        self, write: WriteTarget, live: StoredObject, options: DeleteOptions
    ) -> WriteOutcome:
        """Begin it, or do it at once where nothing holds the object."""
        kind = write.kind
        check_preconditions(kind, live, options)
        if options.dry_run:
            write = msgspec.structs.replace(write, dry_run=True)
        if kind.resource == "namespaces":
            return self._delete_namespace(write, live)
        thing = decoded(live.raw)
        if kind.resource == "pods":
            thing, over = self._graced(thing, options)
        else:
            over = True
        thing = _held_by_policy(thing, options)
        if self._strategies(kind).has_finalizers(thing):
            return self._writer.put(write, live, self._doomed(thing, grace=0))
        if not over:
            return self._writer.put(write, live, thing)
        return self._gone(write, live, thing)

    def _gone(self, write: WriteTarget, live: StoredObject, thing: JsonObject) -> WriteOutcome:
        """A pod is seen with its grace over first."""
        if write.kind.resource == "pods" and not write.dry_run:
            before = decoded(live.raw)
            live = self._writer.mark(write, live, thing)
            gone = self._writer.remove(write, live)
            return msgspec.structs.replace(gone, before=before)
        whole = self._strategies(write.kind).returns_deleted
        return self._writer.remove(write, live, raw=b"" if whole else _done(write.kind, live))

    def _graced(self, thing: JsonObject, options: DeleteOptions) -> tuple[JsonObject, bool]:
        """The pod as it waits for its end, and whether that is now."""
        metadata: JsonObject = thing["metadata"]
        asked = options.grace_period_seconds
        if metadata.get("deletionTimestamp"):
            left = metadata.get("deletionGracePeriodSeconds")
            if left is None:
                return thing, True
            if asked is None or asked >= left:
                return thing, not left
            since = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - left
            return self._waiting(thing, since, max(asked, 0)), asked <= 0
        grace = _grace(thing, asked)
        return self._doomed(thing, grace=grace), not grace

    def _waiting(self, thing: JsonObject, since: float, grace: int) -> JsonObject:
        ends = {
            "deletionTimestamp": format_time(since + grace),
            "deletionGracePeriodSeconds": grace,
        }
        return {**thing, "metadata": {**thing["metadata"], **ends}}

    def _doomed(self, thing: JsonObject, *, grace: int) -> JsonObject:
        """Marked for deletion, if it is not yet."""
        metadata: JsonObject = thing["metadata"]
        if metadata.get("deletionTimestamp"):
            return thing
        doomed = self._waiting(thing, self._writer.time(), grace)
        if metadata.get("generation"):
            doomed["metadata"]["generation"] = metadata["generation"] + 1
        return doomed

    def _delete_namespace(self, write: WriteTarget, live: StoredObject) -> WriteOutcome:
        if live.name in _PROTECTED:
            raise StatusError(
                403,
                "Forbidden",
                f'namespaces "{live.name}" is forbidden: this namespace may not be deleted',
                details=details(write.kind, live.name),
            )
        thing = decoded(live.raw)
        if not self._strategies(write.kind).has_finalizers(thing):
            return self._writer.remove(write, live)
        thing["metadata"].setdefault("deletionTimestamp", self._writer.now())
        thing["status"] = {**get_map(thing, "status"), "phase": "Terminating"}
        return self._writer.put(write, live, thing)


def check_preconditions(kind: ResourceKind, live: StoredObject, options: DeleteOptions) -> None:
    """Refuse where it is not the object that is meant."""
    must = options.preconditions or _Preconditions()
    uid, revision = must.uid, must.resource_version
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
    told = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    raise StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {told} "{live.name}": {why}',
        details={**details(kind, live.name), "kind": kind.kind},
    )


def _grace(pod: Mapping[str, Any], asked: int | None) -> int:
    spec = get_map(pod, "spec")
    if not spec.get("nodeName") or get_map(pod, "status").get("phase") in _FINISHED:
        return 0
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds")
    return 1 if grace is not None and grace < 0 else grace or 0


def _held_by_policy(thing: JsonObject, options: DeleteOptions) -> JsonObject:
    """What becomes of its dependents is said by a finalizer."""
    policy = options.propagation_policy
    if policy is None:
        return thing
    metadata: JsonObject = thing["metadata"]
    known = get_strings(metadata, "finalizers")
    finalizers = [each for each in known if each not in _FINALIZERS.values()]
    if policy in _FINALIZERS:
        finalizers.append(_FINALIZERS[policy])
    if finalizers == known:
        return thing
    return {**thing, "metadata": {**metadata, "finalizers": finalizers}}


def _done(kind: ResourceKind, live: StoredObject) -> bytes:
    return encoded(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {**details(kind, live.name), "uid": live.uid},
        }
    )
