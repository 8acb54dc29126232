"""Executes each write verb on one object."""

from collections.abc import Mapping

import msgspec

from libs.testing.apiserver.kinds.status_errors import bad_request, not_found
from libs.testing.apiserver.objects.json_access import JsonObject
from libs.testing.apiserver.requests import bodies
from libs.testing.apiserver.requests.options import dry_run, flag
from libs.testing.apiserver.requests.routes import Route
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.writes import identity
from libs.testing.apiserver.writes.definitions import CustomDefinitions
from libs.testing.apiserver.writes.deletion import DeleteOptions, Deleter, delete_options
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
    route: Route
    query: Mapping[str, str]
    content_type: str
    body: bytes
    manager: str

    def target(self, *, name: str = "") -> WriteTarget:
        options = _OPTIONS.get(self.route.verb, "UpdateOptions")
        return WriteTarget(
            kind=self.route.kind,
            namespace=self.route.namespace,
            name=name or self.route.name,
            subresource=self.route.subresource,
            manager=self.manager,
            dry_run=dry_run(self.query, options=options),
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
                thing = self._body(request)
                target = request.target(name=thing["metadata"].get("name") or "")
                outcome = self._writer.create(target, thing)
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
        thing = self._body(request)
        stored, target = self._find(route), request.target()
        if stored is not None:
            return self._writer.update(target, stored, lambda _: thing, put=True)
        metadata = thing["metadata"]
        metadata["name"] = identity.check_name(target, metadata.get("name") or "")
        if not route.kind.put_creates or route.subresource or metadata.get("uid"):
            raise not_found(route.kind, route.name)
        return self._writer.create(target, thing)

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
            raise bodies.unsupported_media(request.content_type)
        kind = request.route.kind
        thing = bodies.parse_object(request.body, kind)
        if request.query.get("fieldValidation") == "Strict":
            unknown = [
                f'unknown field "{path}"' for path in bodies.unknown_fields(thing, kind.shape)
            ]
            if unknown:
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {', '.join(unknown)}"
                )
        return thing
