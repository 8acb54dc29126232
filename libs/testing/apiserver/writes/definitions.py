"""Custom kinds come and go: what is served follows the definitions that are stored.

Here one is established at once; a real server takes some seconds.
"""

from collections.abc import Mapping
from typing import Any

from libs.testing.apiserver.kinds.custom_resources import served_kinds
from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.json_access import JsonObject, get_map, get_maps, get_strings
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.outcome import WriteTarget

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class CustomDefinitions:
    """Keeps what is served in step with the definitions that are stored."""

    def __init__(
        self,
        kinds: ResourceKinds,
        store: Store,
        *,
        writer: ObjectWriter,
        rules: Mapping[str, Predicate],
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._writer = writer
        self._rules = rules

    def adopt(self, thing: Mapping[str, Any]) -> None:
        """Serve what it says from now on."""
        spec: JsonObject = thing["spec"]
        self._kinds.remove(spec["group"], spec["names"]["plural"])
        for kind in served_kinds(thing, self._rules):
            self._kinds.add(kind)

    def establish(self, live: StoredObject) -> None:
        """Its names are accepted, and it is served."""
        at = self._writer.now()
        accepted = condition("NamesAccepted", "NoConflicts", "no conflicts found", at=at)
        told = "the initial names have been accepted"
        established = condition("Established", "InitialNamesAccepted", told, at=at)

        def changed(thing: JsonObject) -> JsonObject:
            status = {
                **thing["status"],
                "conditions": [accepted, established],
                "acceptedNames": thing["spec"]["names"],
            }
            return {**thing, "status": status}

        into = WriteTarget(
            kind=self._own(), name=live.name, subresource="status", manager="kube-apiserver"
        )
        self._writer.update(into, live, changed)

    def start_deletion(self, thing: JsonObject) -> JsonObject:
        """The definition as it waits for the last of its objects."""
        at = self._writer.now()
        told = "CustomResource deletion is in progress"
        ending = condition("Terminating", "InstanceDeletionInProgress", told, at=at)
        metadata = {
            **thing["metadata"],
            "deletionTimestamp": at,
            "finalizers": [*get_strings(thing, "metadata", "finalizers"), _CLEANUP],
        }
        conditions = [*get_maps(thing, "status", "conditions"), ending]
        status = {**get_map(thing, "status"), "conditions": conditions}
        return {**thing, "metadata": metadata, "status": status}

    def finish_deletion(self, thing: Mapping[str, Any]) -> bool:
        """Whether nothing keeps it any more; then its kind is served no longer."""
        spec: JsonObject = thing["spec"]
        kind = self.kind_of(thing)
        if kind is not None and len(self._store.of_kind(kind)):
            return False
        if set(get_strings(thing, "metadata", "finalizers")) - {_CLEANUP}:
            return False
        self._kinds.remove(spec["group"], spec["names"]["plural"])
        return True

    def kind_of(self, thing: Mapping[str, Any]) -> ResourceKind | None:
        """The kind that a definition makes, in any version."""
        spec: JsonObject = thing["spec"]
        return self._kinds.by_resource(spec["group"], spec["names"]["plural"])

    def of(self, kind: ResourceKind) -> Mapping[str, Any] | None:
        """The definition that made a kind."""
        stored = self._store.of_kind(self._own()).get("", kind.resource)
        return None if stored is None else decoded(stored.raw)

    def stored(self, thing: Mapping[str, Any]) -> tuple[ResourceKind, StoredObject | None]:
        """A definition as it is in the store."""
        own = self._own()
        return own, self._store.of_kind(own).get("", thing["metadata"]["name"])

    def _own(self) -> ResourceKind:
        kind = self._kinds.by_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        if kind is None:
            raise LookupError("definitions themselves are always served")
        return kind


def condition(kind: str, reason: str, message: str, *, at: str) -> JsonObject:
    """One that is so."""
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }
