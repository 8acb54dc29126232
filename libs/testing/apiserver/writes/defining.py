"""Custom kinds come and go: what is served follows the definitions that are stored.

Here one is established at once; a real server takes some seconds.
"""

from collections.abc import Mapping
from typing import Any

from libs.testing.apiserver.kinds import Kind, Kinds
from libs.testing.apiserver.kinds.custom import served
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.parts import Thing, items, part, words
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.storage.store import Store, Stored
from libs.testing.apiserver.writes import Write
from libs.testing.apiserver.writes.writing import Writer

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    """Keeps what is served in step with the definitions that are stored."""

    def __init__(
        self, kinds: Kinds, store: Store, *, writer: Writer, rules: Mapping[str, Predicate]
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._writer = writer
        self._rules = rules

    def adopt(self, thing: Mapping[str, Any]) -> None:
        """Serve what it says from now on."""
        spec: Thing = thing["spec"]
        self._kinds.remove(spec["group"], spec["names"]["plural"])
        for kind in served(thing, self._rules):
            self._kinds.add(kind)

    def establish(self, live: Stored) -> None:
        """Its names are accepted, and it is served."""
        at = self._writer.now()
        accepted = condition("NamesAccepted", "NoConflicts", "no conflicts found", at=at)
        told = "the initial names have been accepted"
        established = condition("Established", "InitialNamesAccepted", told, at=at)

        def changed(thing: Thing) -> Thing:
            status = {
                **thing["status"],
                "conditions": [accepted, established],
                "acceptedNames": thing["spec"]["names"],
            }
            return {**thing, "status": status}

        into = Write(
            kind=self._own(), name=live.name, subresource="status", manager="kube-apiserver"
        )
        self._writer.update(into, live, changed)

    def begin_end(self, thing: Thing) -> Thing:
        """The definition as it waits for the last of its objects."""
        at = self._writer.now()
        told = "CustomResource deletion is in progress"
        ending = condition("Terminating", "InstanceDeletionInProgress", told, at=at)
        metadata = {
            **thing["metadata"],
            "deletionTimestamp": at,
            "finalizers": [*words(thing, "metadata", "finalizers"), _CLEANUP],
        }
        conditions = [*items(thing, "status", "conditions"), ending]
        status = {**part(thing, "status"), "conditions": conditions}
        return {**thing, "metadata": metadata, "status": status}

    def ended(self, thing: Mapping[str, Any]) -> bool:
        """Whether nothing keeps it any more; then its kind is served no longer."""
        spec: Thing = thing["spec"]
        kind = self.kind_of(thing)
        if kind is not None and len(self._store.shelf(kind)):
            return False
        if set(words(thing, "metadata", "finalizers")) - {_CLEANUP}:
            return False
        self._kinds.remove(spec["group"], spec["names"]["plural"])
        return True

    def kind_of(self, thing: Mapping[str, Any]) -> Kind | None:
        """The kind that a definition makes, in any version."""
        spec: Thing = thing["spec"]
        return self._kinds.by_resource(spec["group"], spec["names"]["plural"])

    def of(self, kind: Kind) -> Mapping[str, Any] | None:
        """The definition that made a kind."""
        stored = self._store.shelf(self._own()).get("", kind.resource)
        return None if stored is None else decoded(stored.raw)

    def stored(self, thing: Mapping[str, Any]) -> tuple[Kind, Stored | None]:
        """A definition as it is in the store."""
        own = self._own()
        return own, self._store.shelf(own).get("", thing["metadata"]["name"])

    def _own(self) -> Kind:
        kind = self._kinds.by_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        if kind is None:
            raise LookupError("definitions themselves are always served")
        return kind


def condition(kind: str, reason: str, message: str, *, at: str) -> Thing:
    """One that is so."""
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }
