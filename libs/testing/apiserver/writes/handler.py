"""Writes: each verb on its way into the store."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.custom_resources import RESOURCE
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request, not_found
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.json_access import JsonObject
from libs.testing.apiserver.requests import bodies
from libs.testing.apiserver.requests.options import dry_run, flag
from libs.testing.apiserver.requests.routes import Route
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.writes import identity
from libs.testing.apiserver.writes.definitions import CustomDefinitions
from libs.testing.apiserver.writes.deletion import (
    DeleteOptions,
    Deleter,
    check_preconditions,
    delete_options,
)
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.outcome import WriteOutcome, WriteTarget
from libs.testing.apiserver.writes.patch import APPLY, Applier, check_options, patch_function
from libs.testing.apiserver.writes.pod_subresources import (
    BindingBody,
    EvictionBody,
    Evictor,
    bind,
    parse_body,
)

_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class WriteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One write, as it came in."""

    route: Route
    query: Mapping[str, str]
    content_type: str
    body: bytes
    manager: str

    def write(self, kind: ResourceKind, *, name: str = "") -> WriteTarget:
        """Where it goes."""
        options = _OPTIONS.get(self.route.verb, "UpdateOptions")
        return WriteTarget(
            kind=kind,
            namespace=self.route.namespace,
            name=name or self.route.name,
            subresource=self.route.subresource,
            manager=self.manager,
            dry_run=dry_run(self.query, options=options),
        )


class WriteHandler:
    """Carries out writes; between reading and storing it gives nobody a turn."""

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

    def execute(self, order: WriteRequest) -> WriteOutcome:
        """What one request does to one object."""
        kind = order.route.kind
        match order.route.verb:
            case "create":
                outcome = self._create(order)
            case "update":
                outcome = self._put(order)
            case "patch":
                outcome = self._patch(order)
            case "delete":
                options = delete_options(order.body, order.query)
                outcome = self._delete(order.write(kind), self._live(order.route), options)
            case "evict":
                live = self._live(order.route)
                outcome = self._evictor.evict(
                    order.write(kind), live, parse_body(order.body, EvictionBody)
                )
            case _:
                live = self._live(order.route)
                binding = parse_body(order.body, BindingBody)
                outcome = bind(order.write(kind), live, binding, writer=self._writer)
        self._follow(kind, outcome)
        return outcome

    def delete_one(
        self, order: WriteRequest, stored: StoredObject, options: DeleteOptions
    ) -> WriteOutcome:
        """One of the many that a request deletes."""
        kind = order.route.kind
        write = order.write(kind, name=stored.name)
        write = msgspec.structs.replace(write, namespace=stored.namespace)
        outcome = self._delete(write, stored, options)
        self._follow(kind, outcome)
        return outcome

    def _live(self, route: Route) -> StoredObject:
        stored = self._store.of_kind(route.kind).get(route.namespace, route.name)
        if stored is None:
            raise not_found(route.kind, route.name)
        return stored

    def _create(self, order: WriteRequest) -> WriteOutcome:
        kind = order.route.kind
        thing = self._body(order)
        definition = self._definitions.of(kind) if kind.custom else None
        name = thing["metadata"].get("name") or ""
        if definition is not None and definition["metadata"].get("deletionTimestamp"):
            raise StatusError(
                403,
                "Forbidden",
                f'{kind.resource} "{name}" is forbidden: create not allowed while custom resource '
                "definition is terminating",
                details={"name": name, "group": kind.group, "kind": kind.plural},
            )
        return self._writer.create(order.write(kind, name=name), thing)

    def _put(self, order: WriteRequest) -> WriteOutcome:
        route = order.route
        thing = self._body(order)
        stored = self._store.of_kind(route.kind).get(route.namespace, route.name)
        write = order.write(route.kind)
        if stored is not None:
            return self._writer.update(write, stored, lambda _: thing, put=True)
        thing["metadata"]["name"] = identity.check_name(write, thing["metadata"].get("name") or "")
        if not route.kind.put_creates or route.subresource or thing["metadata"].get("uid"):
            raise not_found(route.kind, route.name)
        return self._writer.create(write, thing)

    def _patch(self, order: WriteRequest) -> WriteOutcome:
        route, force = order.route, flag(order.query, "force")
        applies = order.content_type == APPLY
        named = order.query.get("fieldManager", "")
        check_options(applies=applies, manager=named, force=force)
        write = order.write(route.kind)
        if applies:
            stored = self._store.of_kind(route.kind).get(route.namespace, route.name)
            return self._applier.apply(write, stored, order.body, force=force)
        patched = patch_function(order.content_type, order.body, route.kind)
        return self._writer.update(write, self._live(route), patched)

    def _delete(
        self, write: WriteTarget, live: StoredObject, options: DeleteOptions
    ) -> WriteOutcome:
        if write.kind.resource != RESOURCE:
            return self._deleter.delete(write, live, options)
        check_preconditions(write.kind, live, options)
        if options.dry_run:
            write = msgspec.structs.replace(write, dry_run=True)
        thing = decoded(live.raw)
        if thing["metadata"].get("deletionTimestamp"):
            return self._writer.put(write, live, thing)
        return self._writer.put(write, live, self._definitions.start_deletion(thing))

    def _body(self, order: WriteRequest) -> JsonObject:
        if order.content_type not in ("", "application/json", "*/*"):
            raise bodies.unsupported_media(order.content_type)
        thing = bodies.parse_object(order.body, order.route.kind)
        if order.query.get("fieldValidation") == "Strict":
            kind = order.route.kind
            found = [f'unknown field "{path}"' for path in bodies.unknown_fields(thing, kind.shape)]
            if found:
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {', '.join(found)}"
                )
        return thing

    def _follow(self, kind: ResourceKind, outcome: WriteOutcome) -> None:
        """What a write brings with it: kinds come and go with their definitions."""
        if kind.resource == RESOURCE and outcome.after is not None:
            _, stored = self._definitions.stored(outcome.after)
            if stored is None:  # a dry run
                return
            definition = decoded(stored.raw)
            self._definitions.adopt(definition)
            if outcome.before is None:
                self._definitions.establish(stored)
            if definition["metadata"].get("deletionTimestamp"):
                self._empty(definition)
        elif kind.custom and outcome.gone:
            definition = self._definitions.of(kind)
            if definition is not None and definition["metadata"].get("deletionTimestamp"):
                self._end(definition)

    def _empty(self, definition: Mapping[str, Any]) -> None:
        """Delete all objects of a kind whose definition goes."""
        for write, stored in self._instances(definition):
            self._deleter.delete(write, stored, DeleteOptions())
        self._end(definition)

    def _instances(
        self, definition: Mapping[str, Any]
    ) -> Iterator[tuple[WriteTarget, StoredObject]]:
        kind = self._definitions.kind_of(definition)
        if kind is None:
            return
        for stored in self._store.of_kind(kind).select(""):
            yield (
                WriteTarget(
                    kind=kind,
                    namespace=stored.namespace,
                    name=stored.name,
                    manager="kube-apiserver",
                ),
                stored,
            )

    def _end(self, definition: Mapping[str, Any]) -> None:
        if self._definitions.finish_deletion(definition):
            crds, stored = self._definitions.stored(definition)
            if stored is not None:
                write = WriteTarget(kind=crds, name=stored.name, manager="kube-apiserver")
                self._writer.remove(write, stored)
