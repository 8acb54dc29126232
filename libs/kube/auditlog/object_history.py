"""The state of an object after a request with another object in its response.

Evictions, bindings and most deletions do not return the object that they change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from libs.contracts.journal import Revision
from libs.kube import resources
from libs.kube.auditlog.audit_event import AuditEvent, revision_of, uid_of
from libs.kube.changes import Changes, changed_paths
from libs.kube.resources import Resource
from libs.kube.views import format_time

Tree = Mapping[str, Any]

_FINISHED = frozenset({"Succeeded", "Failed"})
_DEFAULT_GRACE = 30
_MARKED = ("metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class InferredState:
    """The object after a request, or None if it was deleted.

    `guessed` holds the paths whose values are inferred, until a response shows the object again.
    """

    after: Tree | None
    guessed: Sequence[str] = ()


def after_eviction(pod: Tree, *, time: float, options: Tree) -> InferredState:
    """Return the pod marked as disrupted, and deleted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": format_time(time),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    deleted = after_deletion(
        _with_condition(pod, condition), time=time, options=options, is_pod=True
    )
    return InferredState(
        deleted.after, (*deleted.guessed, "status.conditions[type=DisruptionTarget]")
    )


def after_deletion(manifest: Tree, *, time: float, options: Tree, is_pod: bool) -> InferredState:
    """Return no object, or a marked object if a kubelet or a finalizer holds it."""
    metadata = subtree(manifest, "metadata")
    if metadata.get("deletionTimestamp"):
        return InferredState(manifest)
    grace = _grace(manifest, options) if is_pod else 0
    if not grace and not _has_finalizers(manifest):
        return InferredState(None)
    marks = {"deletionTimestamp": format_time(time + grace), "deletionGracePeriodSeconds": grace}
    return InferredState({**manifest, "metadata": {**metadata, **marks}}, _MARKED)


def after_binding(pod: Tree, *, time: float, node: str) -> InferredState:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(time)}
    bound = {**pod, "spec": {**subtree(pod, "spec"), "nodeName": node}}
    return InferredState(
        _with_condition(bound, condition),
        ("spec.nodeName", "status.conditions[type=PodScheduled]"),
    )


def is_removed(manifest: Tree) -> bool:
    """Return whether an object in a response is already deleted: no grace, no finalizers."""
    metadata = subtree(manifest, "metadata")
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("deletionGracePeriodSeconds")
        and not _has_finalizers(manifest)
    )


def subtree(manifest: Tree, key: str) -> Tree:
    return cast(Tree, manifest.get(key) or {})


def _has_finalizers(manifest: Tree) -> bool:
    return bool(
        subtree(manifest, "metadata").get("finalizers")
        or subtree(manifest, "spec").get("finalizers")
    )


def _grace(pod: Tree, options: Tree) -> int:
    spec = subtree(pod, "spec")
    if not spec.get("nodeName") or subtree(pod, "status").get("phase") in _FINISHED:
        return 0
    requested = options.get("gracePeriodSeconds")
    return int(
        spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        if requested is None
        else requested
    )


def _with_condition(manifest: Tree, condition: Tree) -> Tree:
    status = subtree(manifest, "status")
    conditions = cast(list[Tree], status.get("conditions") or [])
    others = [known for known in conditions if known["type"] != condition["type"]]
    return {**manifest, "status": {**status, "conditions": [*others, condition]}}


_INDIRECT_SUBRESOURCES = frozenset({"binding", "eviction"})
"""Subresources whose response is not the object that they change."""

_Address = tuple[str, str, str, str]
"""Group, resource, namespace, name."""


@dataclass(frozen=True, slots=True)
class _KnownObject:
    """The last known state of an object, from a response or inferred."""

    manifest: Tree
    address: _Address
    guessed: Sequence[str] = ()
    """The paths whose values are inferred."""


class ObjectHistory:
    """Keeps the last state of each object that was not deleted."""

    def __init__(self) -> None:
        self._objects: dict[str, _KnownObject] = {}
        self._uids: dict[_Address, str] = {}
        self._kinds = {
            (known.group, known.plural): known.kind
            for known in vars(resources).values()
            if isinstance(known, Resource)
        }

    def revisions(self, event: AuditEvent) -> Iterator[Revision]:
        """Return the revisions of an event: one per changed object."""
        if not event.is_success:
            yield self._record(event, uid=self._uid(event))
        elif not event.response_body:
            yield self._without_bodies(event)
        elif event.verb == "deletecollection":
            yield from self._deleted_collection(event)
        elif event.object_reference.subresource in _INDIRECT_SUBRESOURCES:
            yield self._changed_indirectly(event)
        elif event.verb == "delete":
            yield self._deleted(event)
        elif uid_of(event.response_body):
            yield self._written(event)

    def _written(self, event: AuditEvent) -> Revision:
        after = _without_managed_fields(event.response_body)
        uid = uid_of(after)
        known = self._objects.get(uid)
        self._kinds.setdefault(
            (event.object_reference.api_group, event.object_reference.resource), after["kind"]
        )
        if known and revision_of(known.manifest) > event.revision:
            # The event came too late to separate its change from later ones.
            return self._record(event, uid=uid, manifest=after)
        changed: Changes = {}
        if known:
            changed = changed_paths(known.manifest, after)
            changed = {
                path: values
                for path, values in changed.items()
                if not path.startswith(tuple(known.guessed))
            }
        elif event.code == 201:
            changed = changed_paths(None, after)
        self._keep(event, uid, InferredState(None if is_removed(after) else after))
        return self._record(event, uid=uid, manifest=after, changed=changed)

    def _changed_indirectly(self, event: AuditEvent) -> Revision:
        uid = self._uid(event)
        known = self._objects.get(uid)
        if known is None:
            return self._record(event, uid=uid)
        state = _inferred_state(event, known.manifest)
        changed = changed_paths(known.manifest, state.after)
        self._keep(event, uid, InferredState(state.after, (*known.guessed, *state.guessed)))
        return self._record(event, uid=uid, manifest=known.manifest, changed=changed)

    def _deleted(self, event: AuditEvent) -> Revision:
        response = event.response_body if uid_of(event.response_body) else None
        if response and "deletionTimestamp" in response["metadata"] and not is_removed(response):
            return self._written(event)
        uid = (
            uid_of(response or {})
            or subtree(event.response_body, "details").get("uid")
            or self._uid(event)
        )
        known = self._objects.get(uid)
        self._keep(event, uid, InferredState(None))
        if known is None:
            return self._record(event, uid=uid, manifest=response)
        changed = changed_paths(known.manifest, None)
        return self._record(event, uid=uid, manifest=known.manifest, changed=changed)

    def _deleted_collection(self, event: AuditEvent) -> Iterator[Revision]:
        """Return one revision per object; the response has the objects before the deletion."""
        kind = str(event.response_body.get("kind", "")).removesuffix("List")
        for item in cast(list[Tree], event.response_body.get("items") or []):
            before = {"kind": kind, **_without_managed_fields(item)}
            state = after_deletion(
                before, time=event.time, options=event.request_body, is_pod=kind == "Pod"
            )
            self._keep(event, uid_of(item), state)
            changed = changed_paths(before, state.after)
            yield self._record(event, uid=uid_of(item), manifest=before, changed=changed)

    def _without_bodies(self, event: AuditEvent) -> Revision:
        """Forget the object of an event that was logged without bodies."""
        uid = self._uid(event)
        self._keep(event, uid, InferredState(None))
        return self._record(event, uid=uid)

    def _uid(self, event: AuditEvent) -> str:
        """Return the requested uid, or else that of the object at the requested address."""
        return (
            event.object_reference.uid
            or uid_of(event.request_body)
            or self._uids.get(_requested_address(event), "")
        )

    def _keep(self, event: AuditEvent, uid: str, state: InferredState) -> None:
        if state.after is None:
            known = self._objects.pop(uid, None)
            if known and self._uids.get(known.address) == uid:
                del self._uids[known.address]
            return
        metadata = subtree(state.after, "metadata")
        reference = event.object_reference
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        address = reference.api_group, reference.resource, namespace, name
        if (former := self._uids.get(address, uid)) != uid:
            self._objects.pop(former, None)  # its deletion was not logged
        self._uids[address] = uid
        self._objects[uid] = _KnownObject(state.after, address, state.guessed)

    def _record(
        self,
        event: AuditEvent,
        *,
        uid: str,
        manifest: Tree | None = None,
        changed: Changes | None = None,
    ) -> Revision:
        _, _, namespace, name = _requested_address(event)
        if manifest:
            metadata = subtree(manifest, "metadata")
            namespace, name = metadata.get("namespace", ""), metadata["name"]
        return Revision(
            revision=event.revision,
            time=event.time,
            user=event.username,
            manager=event.manager,
            verb=event.journal_verb(),
            code=event.code,
            kind=self._kind(event, manifest or {}),
            namespace=namespace,
            name=name,
            uid=uid,
            changed=changed or {},
        )

    def _kind(self, event: AuditEvent, manifest: Tree) -> str:
        ref = event.object_reference
        if ref.subresource == "binding":
            return "Binding"
        kind = manifest.get("kind") or self._kinds.get((ref.api_group, ref.resource))
        requested = "" if event.verb.startswith("delete") else event.request_body.get("kind")
        return kind or requested or ref.resource


def _requested_address(event: AuditEvent) -> _Address:
    ref = event.object_reference
    # In the log, a Namespace object has itself as its namespace.
    namespace = "" if ref.resource == "namespaces" else ref.namespace
    name = ref.name or subtree(event.request_body, "metadata").get("name", "")
    return ref.api_group, ref.resource, namespace, name


def _inferred_state(event: AuditEvent, manifest: Tree) -> InferredState:
    if event.object_reference.subresource == "eviction":
        options = subtree(event.request_body, "deleteOptions")
        return after_eviction(manifest, time=event.time, options=options)
    node = subtree(event.request_body, "target")["name"]
    return after_binding(manifest, time=event.time, node=node)


def _without_managed_fields(manifest: Tree) -> dict[str, Any]:
    metadata = subtree(manifest, "metadata")
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**manifest, "metadata": kept}
