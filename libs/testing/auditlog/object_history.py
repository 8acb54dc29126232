"""What the events of an audit log did to objects, one after the other in order of revisions.

Nothing is made up: an object whose earlier state was not seen has no `changed`, and an answer that
shows no object (of a refusal, most deletions, an eviction, a binding) has revision 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from libs.contracts.journal import Revision
from libs.kube import resources
from libs.kube.changes import Changes, changed_paths
from libs.kube.resources import Resource
from libs.testing.auditlog import inferred_state
from libs.testing.auditlog.audit_event import AuditEvent, revision_of, uid_of
from libs.testing.auditlog.inferred_state import InferredState, Tree, subtree

_HIDDEN = frozenset({"binding", "eviction", "scale"})
"""Subresources whose answer is not the object that they change."""

_Address = tuple[str, str, str, str]
"""Group, resource, namespace, name."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """An object as it was last shown, or must be since then."""

    whole: Tree
    address: _Address
    guessed: Sequence[str] = ()
    """The paths of which nobody was shown what they are now."""


class ObjectHistory:
    """Keeps one state of each object that was seen and did not end."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._uids: dict[_Address, str] = {}
        self._kinds = {
            (known.group, known.plural): known.kind
            for known in vars(resources).values()
            if isinstance(known, Resource)
        }

    def revisions(self, event: AuditEvent) -> Iterator[Revision]:
        """One; of a deletion of many one for each; none of what is not stored."""
        if not event.is_success:
            yield self._record(event, uid=self._uid(event))
        elif not event.response_body:
            yield self._unshown(event)
        elif event.verb == "deletecollection":
            yield from self._deleted_many(event)
        elif event.object_reference.subresource in _HIDDEN:
            yield self._hidden(event)
        elif event.verb == "delete":
            yield self._deleted(event)
        elif uid_of(event.response_body):
            yield self._written(event)

    def _written(self, event: AuditEvent) -> Revision:
        after = _without_owners(event.response_body)
        uid = uid_of(after)
        seen = self._seen.get(uid)
        self._kinds.setdefault(
            (event.object_reference.api_group, event.object_reference.resource), after["kind"]
        )
        if seen and revision_of(seen.whole) > event.revision:
            # It came too late to be told from what was written after it.
            return self._record(event, uid=uid, whole=after)
        changed: Changes = {}
        if seen:
            changed = changed_paths(seen.whole, after)
            changed = {
                path: values
                for path, values in changed.items()
                if not path.startswith(tuple(seen.guessed))
            }
        elif event.code == 201:
            changed = changed_paths(None, after)
        self._keep(event, uid, InferredState(None if inferred_state.is_removed(after) else after))
        return self._record(event, uid=uid, whole=after, changed=changed)

    def _hidden(self, event: AuditEvent) -> Revision:
        uid = self._uid(event)
        seen = self._seen.get(uid)
        if seen is None:
            return self._record(event, uid=uid)
        outcome = _hidden_outcome(event, seen.whole)
        changed = changed_paths(seen.whole, outcome.after)
        self._keep(event, uid, InferredState(outcome.after, (*seen.guessed, *outcome.guessed)))
        return self._record(event, uid=uid, whole=seen.whole, changed=changed)

    def _deleted(self, event: AuditEvent) -> Revision:
        shown = event.response_body if uid_of(event.response_body) else None
        if (
            shown
            and "deletionTimestamp" in shown["metadata"]
            and not inferred_state.is_removed(shown)
        ):
            return self._written(event)
        uid = (
            uid_of(shown or {})
            or subtree(event.response_body, "details").get("uid")
            or self._uid(event)
        )
        seen = self._seen.get(uid)
        self._keep(event, uid, InferredState(None))
        if seen is None:
            return self._record(event, uid=uid, whole=shown)
        changed = changed_paths(seen.whole, None)
        return self._record(event, uid=uid, whole=seen.whole, changed=changed)

    def _deleted_many(self, event: AuditEvent) -> Iterator[Revision]:
        """The answer has all of them, as they were before."""
        kind = str(event.response_body.get("kind", "")).removesuffix("List")
        for item in cast(list[Tree], event.response_body.get("items") or []):
            before = {"kind": kind, **_without_owners(item)}
            outcome = inferred_state.after_deletion(
                before, at=event.time, options=event.request_body, is_pod=kind == "Pod"
            )
            self._keep(event, uid_of(item), outcome)
            changed = changed_paths(before, outcome.after)
            yield self._record(event, uid=uid_of(item), whole=before, changed=changed)

    def _unshown(self, event: AuditEvent) -> Revision:
        """It was logged without its bodies: from here on nothing is known of the object."""
        uid = self._uid(event)
        self._keep(event, uid, InferredState(None))
        return self._record(event, uid=uid)

    def _uid(self, event: AuditEvent) -> str:
        """Of whom it was meant for, or else of whom it met."""
        return (
            event.object_reference.uid
            or uid_of(event.request_body)
            or self._uids.get(_asked_address(event), "")
        )

    def _keep(self, event: AuditEvent, uid: str, outcome: InferredState) -> None:
        if outcome.after is None:
            gone = self._seen.pop(uid, None)
            if gone and self._uids.get(gone.address) == uid:
                del self._uids[gone.address]
            return
        metadata = subtree(outcome.after, "metadata")
        place = metadata.get("namespace", ""), metadata["name"]
        address = (event.object_reference.api_group, event.object_reference.resource, *place)
        if (former := self._uids.get(address, uid)) != uid:
            self._seen.pop(former, None)  # its end was not logged
        self._uids[address] = uid
        self._seen[uid] = _Seen(outcome.after, address, outcome.guessed)

    def _record(
        self,
        event: AuditEvent,
        *,
        uid: str,
        whole: Tree | None = None,
        changed: Changes | None = None,
    ) -> Revision:
        _, _, namespace, name = _asked_address(event)
        if whole:
            metadata = subtree(whole, "metadata")
            namespace, name = metadata.get("namespace", ""), metadata["name"]
        return Revision(
            revision=event.revision,
            time=event.time,
            user=event.username,
            manager=event.manager,
            verb=event.journal_verb(),
            code=event.code,
            kind=self._kind(event, whole or {}),
            namespace=namespace,
            name=name,
            uid=uid,
            changed=changed or {},
        )

    def _kind(self, event: AuditEvent, whole: Tree) -> str:
        ref = event.object_reference
        if ref.subresource == "binding":
            return "Binding"  # it creates one, so to say; the pod is not its doing
        known = whole.get("kind") or self._kinds.get((ref.api_group, ref.resource))
        asked = "" if event.verb.startswith("delete") else event.request_body.get("kind")
        return known or asked or ref.resource


def _asked_address(event: AuditEvent) -> _Address:
    ref = event.object_reference
    # The server calls a namespace its own namespace.
    namespace = "" if ref.resource == "namespaces" else ref.namespace
    name = ref.name or subtree(event.request_body, "metadata").get("name", "")
    return ref.api_group, ref.resource, namespace, name


def _hidden_outcome(event: AuditEvent, whole: Tree) -> InferredState:
    if event.object_reference.subresource == "eviction":
        options = subtree(event.request_body, "deleteOptions")
        return inferred_state.after_eviction(whole, at=event.time, options=options)
    if event.object_reference.subresource == "binding":
        return inferred_state.after_binding(
            whole, at=event.time, node=subtree(event.request_body, "target")["name"]
        )
    return inferred_state.after_scaling(
        whole, replicas=subtree(event.response_body, "spec").get("replicas", 0)
    )


def _without_owners(whole: Tree) -> dict[str, Any]:
    """Of the fields: a third of an object, and never asked for."""
    metadata = subtree(whole, "metadata")
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**whole, "metadata": kept}
