"""Requests as other clients send them: people with kubectl, and controllers."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from libs.kube.client import MERGE_PATCH
from libs.kube.requests import JSON
from libs.kube.resources import NODES, Resource
from tests.component.kube.sandbox import Kube

JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JsonObject = dict[str, Any]


async def send_request(
    kube: Kube,
    method: str,
    path: str,
    *,
    body: object = None,
    content_type: str = JSON,
    **query: str,
) -> JsonObject:
    """Send a raw request; return the whole object of the response."""
    answer = await kube.request(method, path, query=query, body=body, content_type=content_type)
    return cast(JsonObject, msgspec.json.decode(answer))


async def get_json(kube: Kube, resource: Resource[Any], name: str) -> JsonObject:
    """Return an object with all its fields."""
    return await send_request(kube, "GET", kube.path(resource, name))


async def patch(
    kube: Kube,
    resource: Resource[Any],
    name: str,
    change: object,
    *,
    subresource: str = "",
    kind: str = MERGE_PATCH,
) -> JsonObject:
    """Patch without preconditions, as kubectl does."""
    path = kube.path(resource, name, subresource=subresource)
    return await send_request(
        kube, "PATCH", path, body=change, content_type=kind, fieldManager=kube.manager
    )


async def label(kube: Kube, node: str, labels: Mapping[str, str | None]) -> JsonObject:
    """Label a node, as `kubectl label` does."""
    return await patch(kube, NODES, node, {"metadata": {"labels": labels}})


async def cordon(kube: Kube, node: str, *, wanted: bool = True) -> JsonObject:
    """Cordon or uncordon as kubectl does: without a write if the node is so already."""
    now = await get_json(kube, NODES, node)
    if now["spec"].get("unschedulable", False) is wanted:
        return now
    change = {"spec": {"unschedulable": True if wanted else None}}
    return await patch(kube, NODES, node, change, kind=STRATEGIC_PATCH)


def managed_fields(obj: JsonObject) -> list[JsonObject]:
    """Return the managedFields without the parts that differ from run to run."""
    fields = cast(list[JsonObject], obj["metadata"].get("managedFields", []))
    return [
        {key: value for key, value in entry.items() if key not in ("time", "fieldsType")}
        for entry in fields
    ]


def managed_fields_entry(
    manager: str, operation: str, fields: JsonObject, **more: str
) -> JsonObject:
    """Return an entry in the form that `managed_fields` returns."""
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "fieldsV1": fields,
        **more,
    }


async def field_owners(kube: Kube, resource: Resource[Any], name: str, path: str) -> list[str]:
    """Return the sorted managers that own a field, e.g. `f:spec.f:unschedulable`."""
    found: list[str] = []
    for entry in managed_fields(await get_json(kube, resource, name)):
        fields = entry["fieldsV1"]
        for part in re.split(r"\.(?=f:|k:)", path):
            fields = fields.get(part)
            if fields is None:
                break
        else:
            found.append(entry["manager"])
    return sorted(found)


class RawWatch:
    """The events of a watch, decoded from its chunks."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self._events: deque[JsonObject] = deque()

    async def next(self) -> JsonObject:
        """Return the next event."""
        event = await self._next()
        if event is None:
            raise AssertionError("the watch ended; expected an event")
        return event

    async def take(self, count: int) -> list[tuple[str, str, str]]:
        """Return the summaries of this many events."""
        return [summarize(await self.next()) for _ in range(count)]

    async def rest(self) -> list[JsonObject]:
        """Return all events until the server ends the watch."""
        events: list[JsonObject] = []
        while (event := await self._next()) is not None:
            events.append(event)
        return events

    async def _next(self) -> JsonObject | None:
        async with asyncio.timeout(20):
            while not self._events:
                chunk = await anext(self._chunks, b"")
                if not chunk:
                    return None
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                self._events.extend(msgspec.json.decode(line) for line in lines)
        return self._events.popleft()


@asynccontextmanager
async def raw_watch(kube: Kube, path: str, **query: str) -> AsyncGenerator[RawWatch]:
    """Open a watch with a raw query."""
    async with kube.stream(path, query={"watch": "true", **query}) as answer:
        yield RawWatch(answer.chunks())


def summarize(event: JsonObject) -> tuple[str, str, str]:
    """Return the event's type, and the object's name and revision."""
    metadata = event["object"]["metadata"]
    return event["type"], metadata.get("name", ""), metadata["resourceVersion"]
