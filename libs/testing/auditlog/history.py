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
from libs.testing.auditlog import unseen
from libs.testing.auditlog.event import Event, revision_of, uid_of
from libs.testing.auditlog.unseen import Outcome, Tree, tree

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


class History:
    """Keeps one state of each object that was seen and did not end."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._uids: dict[_Address, str] = {}
        self._kinds = {
            (known.group, known.plural): known.kind
            for known in vars(resources).values()
            if isinstance(known, Resource)
        }

    def revisions(self, event: Event) -> Iterator[Revision]:
        """One; of a deletion of many one for each; none of what is not stored."""
        if not event.granted:
            yield self._record(event, uid=self._uid(event))
        elif not event.answer:
            yield self._unshown(event)
        elif event.verb == "deletecollection":
            yield from self._deleted_many(event)
        elif event.ref.subresource in _HIDDEN:
            yield self._hidden(event)
        elif event.verb == "delete":
            yield self._deleted(event)
        elif uid_of(event.answer):
            yield self._written(event)

    def _written(self, event: Event) -> Revision:
        after = _without_owners(event.answer)
        uid = uid_of(after)
        seen = self._seen.get(uid)
        self._kinds.setdefault((event.ref.api_group, event.ref.resource), after["kind"])
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
        self._keep(event, uid, Outcome(None if unseen.leaves(after) else after))
        return self._record(event, uid=uid, whole=after, changed=changed)

    def _hidden(self, event: Event) -> Revision:
        uid = self._uid(event)
        seen = self._seen.get(uid)
        if seen is None:
            return self._record(event, uid=uid)
        outcome = _hidden_outcome(event, seen.whole)
        changed = changed_paths(seen.whole, outcome.after)
        self._keep(event, uid, Outcome(outcome.after, (*seen.guessed, *outcome.guessed)))
        return self._record(event, uid=uid, whole=seen.whole, changed=changed)

    def _deleted(self, event: Event) -> Revision:
        shown = event.answer if uid_of(event.answer) else None
        if shown and "deletionTimestamp" in shown["metadata"] and not unseen.leaves(shown):
            return self._written(event)
        uid = uid_of(shown or {}) or tree(event.answer, "details").get("uid") or self._uid(event)
        seen = self._seen.get(uid)
        self._keep(event, uid, Outcome(None))
        if seen is None:
            return self._record(event, uid=uid, whole=shown)
        changed = changed_paths(seen.whole, None)
        return self._record(event, uid=uid, whole=seen.whole, changed=changed)

    def _deleted_many(self, event: Event) -> Iterator[Revision]:
        """The answer has all of them, as they were before."""
        kind = str(event.answer.get("kind", "")).removesuffix("List")
        for item in cast(list[Tree], event.answer.get("items") or []):
            before = {"kind": kind, **_without_owners(item)}
            outcome = unseen.deleted(
                before, at=event.time, options=event.asked, is_pod=kind == "Pod"
            )
            self._keep(event, uid_of(item), outcome)
            changed = changed_paths(before, outcome.after)
            yield self._record(event, uid=uid_of(item), whole=before, changed=changed)

    def _unshown(self, event: Event) -> Revision:
        """It was logged without its bodies: from here on nothing is known of the object."""
        uid = self._uid(event)
        self._keep(event, uid, Outcome(None))
        return self._record(event, uid=uid)

    def _uid(self, event: Event) -> str:
        """Of whom it was meant for, or else of whom it met."""
        return event.ref.uid or uid_of(event.asked) or self._uids.get(_asked_address(event), "")

    def _keep(self, event: Event, uid: str, outcome: Outcome) -> None:
        if outcome.after is None:
            gone = self._seen.pop(uid, None)
            if gone and self._uids.get(gone.address) == uid:
                del self._uids[gone.address]
            return
        metadata = tree(outcome.after, "metadata")
        place = metadata.get("namespace", ""), metadata["name"]
        address = (event.ref.api_group, event.ref.resource, *place)
        if (former := self._uids.get(address, uid)) != uid:
            self._seen.pop(former, None)  # its end was not logged
        self._uids[address] = uid
        self._seen[uid] = _Seen(outcome.after, address, outcome.guessed)

    def _record(
        self, event: Event, *, uid: str, whole: Tree | None = None, changed: Changes | None = None
    ) -> Revision:
        _, _, namespace, name = _asked_address(event)
        if whole:
            metadata = tree(whole, "metadata")
            namespace, name = metadata.get("namespace", ""), metadata["name"]
        return Revision(
            revision=event.revision,
            time=event.time,
            user=event.who,
            manager=event.manager,
            verb=event.does(),
            code=event.code,
            kind=self._kind(event, whole or {}),
            namespace=namespace,
            name=name,
            uid=uid,
            changed=changed or {},
        )

    def _kind(self, event: Event, whole: Tree) -> str:
        ref = event.ref
        if ref.subresource == "binding":
            return "Binding"  # it creates one, so to say; the pod is not its doing
        known = whole.get("kind") or self._kinds.get((ref.api_group, ref.resource))
        asked = "" if event.verb.startswith("delete") else event.asked.get("kind")
        return known or asked or ref.resource


def _asked_address(event: Event) -> _Address:
    ref = event.ref
    # The server calls a namespace its own namespace.
    namespace = "" if ref.resource == "namespaces" else ref.namespace
    name = ref.name or tree(event.asked, "metadata").get("name", "")
    return ref.api_group, ref.resource, namespace, name


def _hidden_outcome(event: Event, whole: Tree) -> Outcome:
    if event.ref.subresource == "eviction":
        options = tree(event.asked, "deleteOptions")
        return unseen.evicted(whole, at=event.time, options=options)
    if event.ref.subresource == "binding":
        return unseen.bound(whole, at=event.time, node=tree(event.asked, "target")["name"])
    return unseen.scaled(whole, replicas=tree(event.answer, "spec").get("replicas", 0))


def _without_owners(whole: Tree) -> dict[str, Any]:
    """Of the fields: a third of an object, and never asked for."""
    metadata = tree(whole, "metadata")
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**whole, "metadata": kept}
