"""The client: one request function with a deadline always, and the few operations made of it.

Every operation goes through `request` or `stream`; what fails is a typed error (`errors`). Nothing
is tried again here: whoever calls knows whether a second try is right.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from sluice.kube.errors import (
    Conflict,
    NotFound,
    TimedOut,
    TooManyRequests,
    Unreadable,
    refusal,
)
from sluice.kube.resources import Resource
from sluice.kube.transport import Answer, Request, Transport
from sluice.runtime.clock import Clock
from sluice.runtime.tasks import bounded

V = TypeVar("V", bound=msgspec.Struct)

WITHIN = 10.0
"""Seconds for a request where the caller says nothing else."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """The very object, in the very state, that a write was decided on."""

    uid: str
    resource_version: str


class Page(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A part of a list, as of one revision."""

    items: tuple[V, ...]
    resource_version: str
    rest: str
    """Asks for the next page; empty at the last."""


class Evicted(msgspec.Struct, frozen=True):
    """The server has marked the pod for deletion; it is gone when its grace is over."""


class NotThere(msgspec.Struct, frozen=True):
    """The pod of that uid is gone already."""


class Withheld(msgspec.Struct, frozen=True):
    """A budget forbids it now, in the server's words."""

    why: str
    retry_after: float | None


Eviction = Evicted | NotThere | Withheld


class Kube:
    """One API server, asked by one field manager."""

    def __init__(self, transport: Transport, *, manager: str, clock: Clock) -> None:
        self._transport = transport
        self.manager = manager
        self._clock = clock

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        within: float = WITHIN,
    ) -> bytes:
        """The body of a good answer; a typed error otherwise, `TimedOut` after `within` seconds.

        What changes something tells the server the same deadline, so that it does not carry out
        late what we have given up.
        """
        asked = dict(query or {})
        if method != "GET":
            asked.setdefault("timeout", f"{within:g}s")
        request = Request(
            method=method,
            path=path,
            query=asked,
            headers={"accept": JSON, **({} if body is None else {"content-type": content_type})},
            body=b"" if body is None else msgspec.json.encode(body),
        )
        try:
            return await bounded(self._exchange(request), seconds=within, clock=self._clock)
        except TimeoutError as error:
            raise TimedOut(tried(request), f"no whole answer within {within:g} s") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], within: float = WITHIN
    ) -> AsyncGenerator[Answer]:
        """An answer that goes on until somebody ends it; `within` is for its head alone."""
        request = Request(method="GET", path=path, query=query, headers={"accept": JSON})
        opened = self._transport.open(request)
        answer = await self._head(request, opened, within=within)
        try:
            if answer.status >= 400:
                body = await bounded(answer.body(), seconds=within, clock=self._clock)
                raise _refused(request, answer, body)
            yield answer
        finally:
            await opened.__aexit__(None, None, None)

    async def get(self, resource: Resource[V], name: str, *, namespace: str = "") -> V:
        """One object as it is now."""
        path = resource.path(namespace=namespace, name=name)
        return read(await self.request("GET", path), resource.view, tried=f"GET {path}")

    async def page(
        self,
        resource: Resource[V],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        resume: str = "",
        resource_version: str = "",
        within: float = 30.0,
    ) -> Page[V]:
        """Objects of a kind, `limit` at a time; `resume` is the `rest` of the page before."""
        query = {"limit": str(limit), "labelSelector": labels, "fieldSelector": fields}
        query |= {"continue": resume, "resourceVersion": resource_version}
        path = resource.path(namespace=namespace)
        body = await self.request(
            "GET", path, query={key: value for key, value in query.items() if value}, within=within
        )
        listed = read(body, _List[resource.view], tried=f"GET {path}")
        meta = listed.metadata
        return Page(items=listed.items, resource_version=meta.resource_version, rest=meta.rest)

    async def create(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        within: float = WITHIN,
    ) -> V:
        """A new object; `AlreadyExists` where there is one of that name."""
        path = resource.path(namespace=namespace)
        return await self._written("POST", path, resource, wanted, within=within)

    async def replace(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        within: float = WITHIN,
    ) -> V:
        """PUT the whole object, or its status; its resourceVersion must be the server's."""
        name = _fenced(wanted, resource)
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._written("PUT", path, resource, wanted, within=within)

    async def merge(
        self,
        resource: Resource[V],
        name: str,
        change: Mapping[str, Any],
        *,
        resource_version: str,
        namespace: str = "",
        subresource: str = "",
        within: float = WITHIN,
    ) -> V:
        """A merge patch of an object that is still at that revision."""
        metadata: Mapping[str, Any] = change.get("metadata") or {}
        fenced = {**change, "metadata": {**metadata, "resourceVersion": resource_version}}
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._written(
            "PATCH", path, resource, fenced, content_type=MERGE_PATCH, within=within
        )

    async def apply(
        self,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        force: bool,
        guard: Guard | None = None,
        namespace: str = "",
        subresource: str = "",
        within: float = WITHIN,
    ) -> V:
        """Say what this manager wants of an object: all that it owns of it, and nothing else.

        Without a guard an object that is not there is created; a Node is never, so there it must
        have one. With a guard, an object that is gone or another by now is `NotFound`.
        """
        if guard is None and not resource.ours_to_create:
            raise ValueError(f"an apply to a {resource.kind} needs a guard, or it could create one")
        metadata: dict[str, Any] = dict(wanted["metadata"])
        if guard is not None:
            metadata |= {"uid": guard.uid, "resourceVersion": guard.resource_version}
        whole = {
            **wanted,
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
        }
        path = resource.path(namespace=namespace, name=metadata["name"], subresource=subresource)
        query = {"force": "true"} if force else {}
        return await self._written(
            "PATCH", path, resource, whole, query=query, content_type=APPLY_PATCH, within=within
        )

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        uid: str,
        namespace: str = "",
        grace: int | None = None,
        within: float = WITHIN,
    ) -> None:
        """Delete the object of that uid; another of the same name is a `Conflict`."""
        path = resource.path(namespace=namespace, name=name)
        await self.request("DELETE", path, body=_doom(uid=uid, grace=grace), within=within)

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str,
        grace: int | None = None,
        within: float = WITHIN,
    ) -> Eviction:
        """Ask that the pod of that uid go; what its budget says is an answer, not an error."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _doom(uid=uid, grace=grace),
        }
        try:
            await self.request("POST", path, body=body, within=within)
        except (NotFound, Conflict):
            return NotThere()
        except TooManyRequests as refused:
            return Withheld(refused.message, refused.retry_after)
        return Evicted()

    async def _written(
        self,
        method: str,
        path: str,
        resource: Resource[V],
        wanted: Mapping[str, Any],
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        within: float,
    ) -> V:
        body = await self.request(
            method,
            path,
            query={**(query or {}), "fieldManager": self.manager},
            body=wanted,
            content_type=content_type,
            within=within,
        )
        return read(body, resource.view, tried=f"{method} {path}")

    async def _exchange(self, request: Request) -> bytes:
        async with self._transport.open(request) as answer:
            body = await answer.body()
            if answer.status >= 400:
                raise _refused(request, answer, body)
            return body

    async def _head(
        self, request: Request, opened: AbstractAsyncContextManager[Answer], *, within: float
    ) -> Answer:
        try:
            return await bounded(opened.__aenter__(), seconds=within, clock=self._clock)
        except TimeoutError as error:
            raise TimedOut(tried(request), f"no answer within {within:g} s") from error


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    rest: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[V], frozen=True):
    metadata: _ListMeta
    items: tuple[V, ...] = ()


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def read(body: bytes, view: type[V], *, tried: str) -> V:
    """The answer as a view; `Unreadable` names the field that is not what it should be."""
    decoder = _decoders.get(view)
    if decoder is None:
        decoder = _decoders[view] = msgspec.json.Decoder(view)
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Unreadable(tried, f"the answer cannot be read as {view.__name__}: {error}") from error


def tried(request: Request) -> str:
    """A request in words, for an error."""
    return f"{request.method} {request.path}"


def _refused(request: Request, answer: Answer, body: bytes) -> Exception:
    return refusal(
        tried(request),
        code=answer.status,
        body=body,
        retry_after=answer.headers.get("retry-after"),
    )


def _fenced(wanted: Mapping[str, Any], resource: Resource[Any]) -> str:
    metadata: Mapping[str, str] = wanted["metadata"]
    if not metadata.get("resourceVersion"):
        raise ValueError(f"a PUT of a {resource.kind} without resourceVersion would be no fence")
    return metadata["name"]


def _doom(*, uid: str, grace: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options
