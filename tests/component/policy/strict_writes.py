"""Writes with strict field validation."""

import re
from typing import Any

import msgspec

from libs.kube.client import APPLY_PATCH
from libs.kube.requests import JSON, Request, Transport
from libs.policy.kinds import KINDS

Object = dict[str, Any]


def object_path(obj: Object, *, named: bool = True) -> str:
    """Return the path of an object, or of its collection if not `named`."""
    api, kind, metadata = obj["apiVersion"], obj["kind"], obj["metadata"]
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    if kind in KINDS:
        plural = KINDS[kind].plural
    else:
        plural = re.sub("s$", "se", re.sub("y$", "ie", kind.lower())) + "s"
    return f"{root}{within}/{plural}" + (f"/{metadata['name']}" if named else "")


async def send(
    wire: Transport,
    method: str,
    path: str,
    body: object = None,
    *,
    content: str = JSON,
    **query: str,
) -> tuple[int, list[str], Any]:
    """Return status, warnings and body of the response."""
    request = Request(
        method=method,
        path=path,
        query={"fieldManager": "sluice-driver", "fieldValidation": "Strict", **query},
        headers={"accept": JSON, "content-type": content},
        body=b"" if body is None else msgspec.json.encode(body),
    )
    async with wire.open(request) as answer:
        headers = answer.headers.items()
        warnings = [value for name, value in headers if name.lower() == "warning"]
        return answer.status, warnings, msgspec.json.decode(await answer.body())


async def is_served(wire: Transport, path: str) -> bool:
    """Report whether a list succeeds; before the kind is served, the response need not be JSON."""
    async with wire.open(Request(method="GET", path=path)) as answer:
        return answer.status == 200


async def apply(wire: Transport, obj: Object) -> Object:
    """Apply with force, as services do."""
    path = object_path(obj)
    status, warnings, answer = await send(
        wire, "PATCH", path, obj, content=APPLY_PATCH, force="true"
    )
    assert (status in (200, 201), warnings) == (True, []), answer
    return answer


async def create(wire: Transport, obj: Object, **query: str) -> Object:
    """Create as a person would, without warnings."""
    path = object_path(obj, named=False)
    status, warnings, answer = await send(wire, "POST", path, obj, **query)
    assert (status, warnings) == (201, []), answer
    return answer
