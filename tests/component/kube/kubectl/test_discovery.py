"""What our server says of its own kinds, the real one says of them too."""

import json
from typing import Any

import msgspec

from libs.kube.http import HttpTransport
from libs.kube.transport import Request
from libs.testing.apiserver import discovery
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.requests.negotiation import ResponseForm, content_type
from tests.component.kube.kubectl.kubectl_process import Kubectl

KINDS = tuple(ResourceKinds())
PLACES = sorted({f"/apis/{kind.api_version}" if kind.group else "/api/v1" for kind in KINDS})


async def test_resource_by_resource(me: Kubectl) -> None:
    for place in PLACES:
        ours = _said(place)
        theirs = json.loads(await me(f"get --raw {place}"))
        assert _without(ours, "resources") == _without(theirs, "resources")
        known = {each["name"]: _without(each, "storageVersionHash") for each in theirs["resources"]}
        for resource in ours["resources"]:
            assert known[resource["name"]] == resource


async def test_all_of_an_api_at_once(wire: HttpTransport) -> None:
    accept = content_type(ResponseForm.DISCOVERY)
    for root in ("/api", "/apis"):
        ours = _said(root, f"{accept},application/json")
        request = Request(method="GET", path=root, headers={"accept": accept})
        async with wire.open(request) as answer:
            theirs = msgspec.json.decode(await answer.body())
            assert (answer.status, answer.headers["content-type"]) == (200, accept)
        assert _without(ours, "items") == _without(theirs, "items")
        named = {item["metadata"].get("name"): item for item in theirs["items"]}
        order = [name for name in named if name in {_name(item) for item in ours["items"]}]
        assert order == [_name(item) for item in ours["items"]]
        for item in ours["items"]:
            (version,) = item["versions"]
            (known,) = named[_name(item)]["versions"]
            assert _without(version, "resources") == _without(known, "resources")
            resources = {each["resource"]: each for each in known["resources"]}
            for resource in version["resources"]:
                their = resources[resource["resource"]]
                assert _without(resource, "subresources") == _without(their, "subresources")
                parts = their.get("subresources", [])
                assert all(part in parts for part in resource.get("subresources", []))


def _said(path: str, accept: str = "") -> Any:
    return json.loads(json.dumps(discovery.discovery_document(path, KINDS, accept)))


def _name(item: dict[str, Any]) -> str | None:
    return item["metadata"].get("name")


def _without(entry: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != field}
