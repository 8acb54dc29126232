"""Execute each write verb on one object, and serve the kinds of written definitions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.bodies import APPLY, parse_object, unknown_fields, unsupported_media
from libs.testing.apiserver.kinds.custom_resources import RESOURCE, served_kind
from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.kinds.schema import Predicate
from libs.testing.apiserver.kinds.status_errors import bad_request, not_found
from libs.testing.apiserver.objects.json import JsonObject, decoded
from libs.testing.apiserver.requests import Route, flag
from libs.testing.apiserver.store import Store, StoredObject
from libs.testing.apiserver.watches import ServerWatches
from libs.testing.apiserver.writes.admission import WriteOutcome, WriteTarget, check_name
from libs.testing.apiserver.writes.deletion import DeleteOptions, Deleter, delete_options
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.patches import Applier, check_options, patch_function
from libs.testing.apiserver.writes.pod_subresources import (
    BindingBody,
    EvictionBody,
    Evictor,
    bind,
    parse_body,
)

_MANAGER = "kube-apiserver"


class CustomDefinitions:
    def __init__(
        self,
        kinds: ResourceKinds,
        store: Store,
        *,
        watches: ServerWatches,
        writer: ObjectWriter,
        rules: Mapping[str, Predicate],
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._watches = watches
        self._writer = writer
        self._rules = rules

    def follow(self, kind: ResourceKind, outcome: WriteOutcome) -> None:
        """Serve what a write of a definition defines, or serve it no longer."""
        if kind.resource != RESOURCE:
            return
        stored = self._store.of_kind(kind).get("", outcome.name)
        if outcome.is_deleted and stored is None and outcome.before is not None:
            self._remove(outcome.before["spec"])
        if outcome.is_deleted or stored is None:  # possibly after a dry run
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

        def change(obj: JsonObject) -> JsonObject:
            names = {"conditions": conditions, "acceptedNames": obj["spec"]["names"]}
            return {**obj, "status": {**obj["status"], **names}}

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
        self._watches.end(clean=True, kind=kind.kind)


def _condition(type: str, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": type,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    query: Mapping[str, str]
    content_type: str
    body: bytes
    manager: str

    def target(self, *, name: str = "") -> WriteTarget:
        return WriteTarget(
            kind=self.route.kind,
            namespace=self.route.namespace,
            name=name or self.route.name,
            subresource=self.route.subresource,
            manager=self.manager,
        )


class WriteHandler:
    """Executes writes. Nothing is awaited between reading and storing an object."""

    def __init__(
        self,
        store: Store,
        *,
        writer: ObjectWriter,
        deleter: Deleter,
        evictor: Evictor,
        definitions: CustomDefinitions,
    ) -> None:
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._evictor = evictor
        self._applier = Applier(writer)
        self._definitions = definitions

    def execute(self, request: WriteRequest) -> WriteOutcome:
        match request.route.verb:
            case "create":
                obj = self._body(request)
                target = request.target(name=obj["metadata"].get("name") or "")
                outcome = self._writer.create(target, obj)
            case "update":
                outcome = self._update(request)
            case "patch":
                outcome = self._patch(request)
            case "delete":
                options = delete_options(request.body, request.query)
                live = self._live(request.route)
                outcome = self._deleter.delete(request.target(), live, options)
            case "evict":
                live = self._live(request.route)
                eviction = parse_body(request.body, EvictionBody)
                outcome = self._evictor.evict(request.target(), live, eviction)
            case _:
                live = self._live(request.route)
                binding = parse_body(request.body, BindingBody)
                outcome = bind(request.target(), live, binding, writer=self._writer)
        self._definitions.follow(request.route.kind, outcome)
        return outcome

    def delete_one(
        self, request: WriteRequest, stored: StoredObject, options: DeleteOptions
    ) -> WriteOutcome:
        """Delete one object of a collection."""
        target = request.target(name=stored.name)
        target = msgspec.structs.replace(target, namespace=stored.namespace)
        outcome = self._deleter.delete(target, stored, options)
        self._definitions.follow(request.route.kind, outcome)
        return outcome

    def _find(self, route: Route) -> StoredObject | None:
        return self._store.of_kind(route.kind).get(route.namespace, route.name)

    def _live(self, route: Route) -> StoredObject:
        stored = self._find(route)
        if stored is None:
            raise not_found(route.kind, route.name)
        return stored

    def _update(self, request: WriteRequest) -> WriteOutcome:
        route = request.route
        obj = self._body(request)
        stored, target = self._find(route), request.target()
        if stored is not None:
            return self._writer.update(target, stored, lambda _: obj, put=True)
        metadata = obj["metadata"]
        metadata["name"] = check_name(target, metadata.get("name") or "")
        if not route.kind.put_creates or route.subresource or metadata.get("uid"):
            raise not_found(route.kind, route.name)
        return self._writer.create(target, obj)

    def _patch(self, request: WriteRequest) -> WriteOutcome:
        route, force = request.route, flag(request.query, "force")
        applies = request.content_type == APPLY
        manager = request.query.get("fieldManager", "")
        check_options(applies=applies, manager=manager, force=force)
        target = request.target()
        if applies:
            return self._applier.apply(target, self._find(route), request.body, force=force)
        patched = patch_function(request.content_type, request.body, route.kind)
        return self._writer.update(target, self._live(route), patched)

    def _body(self, request: WriteRequest) -> JsonObject:
        if request.content_type not in ("", "application/json", "*/*"):
            raise unsupported_media(request.content_type)
        kind = request.route.kind
        obj = parse_object(request.body, kind)
        if request.query.get("fieldValidation") == "Strict":
            unknown = [f'unknown field "{path}"' for path in unknown_fields(obj, kind.shape)]
            if unknown:
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {', '.join(unknown)}"
                )
        return obj
