"""The kinds that are served follow the CustomResourceDefinitions that are stored.

A definition is established at once; a real server takes some seconds. Deleting one deletes its
objects at once, whatever their finalizers.
"""

from collections.abc import Mapping
from typing import Any

from libs.testing.apiserver.kinds.custom_resources import RESOURCE, served_kind
from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.json_access import JsonObject
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.outcome import WriteOutcome, WriteTarget

_MANAGER = "kube-apiserver"


class CustomDefinitions:
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

    def follow(self, kind: ResourceKind, outcome: WriteOutcome) -> None:
        """Serve what a write of a definition defines, or serve it no longer."""
        if kind.resource != RESOURCE:
            return
        if outcome.gone and outcome.before is not None:
            self._remove(outcome.before["spec"])
            return
        stored = self._store.of_kind(kind).get("", outcome.name)
        if stored is None:  # after a dry run
            return
        definition = decoded(stored.raw)
        spec = definition["spec"]
        served = self._kinds.by_resource(spec["group"], spec["names"]["plural"])
        if served is not None:
            self._kinds.remove(served)
        self._kinds.add(served_kind(definition, self._rules))
        if outcome.before is None:
            self._establish(kind, stored)

    def _establish(self, kind: ResourceKind, live: StoredObject) -> None:
        now = self._writer.now()
        conditions = [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            ),
        ]

        def change(thing: JsonObject) -> JsonObject:
            names = {"conditions": conditions, "acceptedNames": thing["spec"]["names"]}
            return {**thing, "status": {**thing["status"], **names}}

        target = WriteTarget(kind=kind, name=live.name, subresource="status", manager=_MANAGER)
        self._writer.update(target, live, change)

    def _remove(self, spec: Mapping[str, Any]) -> None:
        kind = self._kinds.by_resource(spec["group"], spec["names"]["plural"])
        if kind is None:
            return
        for stored in list(self._store.of_kind(kind).select("")):
            target = WriteTarget(
                kind=kind, namespace=stored.namespace, name=stored.name, manager=_MANAGER
            )
            self._writer.remove(target, stored)
        self._kinds.remove(kind)


def _condition(type: str, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": type,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
