"""Lists and watches of metadata alone, for caches that need no more of a kind."""

import asyncio
from typing import Any

import pytest

from libs.kube.cache import Cache
from libs.kube.requests import METADATA, METADATA_LIST
from libs.kube.resources import NODES, Resource
from libs.kube.views import Object
from libs.testing.simulation import make_env
from tests.component.kube.raw_requests import label
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually

NODE_METADATA: Resource[Object] = Resource(
    plural="nodes", kind="Node", namespaced=False, metadata_only=True, view=Object
)
META = "meta.k8s.io/v1"


async def test_a_list_of_metadata_alone(sandbox: Sandbox, node: str) -> None:
    status, listed = await sandbox.raw_response("GET", "/api/v1/nodes", accept=METADATA_LIST)
    assert (status, listed["kind"], listed["apiVersion"]) == (
        200,
        "PartialObjectMetadataList",
        META,
    )
    assert listed["metadata"]["resourceVersion"].isdecimal()
    (found,) = (item for item in listed["items"] if item["metadata"]["name"] == node)
    assert set(found) == {"kind", "apiVersion", "metadata"}
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadata", META)
    assert found["metadata"]["uid"]


async def test_one_object_by_its_metadata_alone(sandbox: Sandbox, node: str) -> None:
    path = f"/api/v1/nodes/{node}"
    status, found = await sandbox.raw_response("GET", path, accept=METADATA)
    assert (status, found["kind"], set(found)) == (
        200,
        "PartialObjectMetadata",
        {"kind", "apiVersion", "metadata"},
    )


@pytest.mark.parametrize(
    ("path", "accept"), [("/api/v1/nodes", METADATA), ("/api/v1/nodes/{}", METADATA_LIST)]
)
async def test_the_form_must_fit(sandbox: Sandbox, node: str, path: str, accept: str) -> None:
    status, refused = await sandbox.raw_response("GET", path.format(node), accept=accept)
    assert (status, refused["reason"]) == (406, "NotAcceptable")


async def test_a_cache_follows_metadata_alone(sandbox: Sandbox, kube: Kube, node: str) -> None:
    cache = Cache(kube, NODE_METADATA, env=make_env())
    changes: list[tuple[Any, Any]] = []
    cache.on_change(lambda old, new: changes.append((old, new)))
    following = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced()
        assert cache.get(node) is not None
        await label(sandbox.kube(), node, {"seen": "yes"})

        def labelled() -> bool:
            found = cache.get(node)
            return found is not None and found.metadata.labels.get("seen") == "yes"

        await eventually(labelled)
        uid = (await kube.get(NODES, node)).metadata.uid
        await kube.delete(NODES, node, uid=uid)
        await eventually(lambda: cache.get(node) is None)
        assert [old.metadata.uid for old, new in changes if old and new is None] == [uid]
        assert cache.problem == ""
    finally:
        following.cancel()
        await asyncio.wait({following})
