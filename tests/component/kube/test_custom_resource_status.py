"""The status of a custom object: its subresource, preconditions and field owners."""

from typing import Any

import msgspec
import pytest

from libs.kube.client import Preconditions
from libs.kube.errors import Conflict, FieldConflict
from tests.component.kube.raw_requests import (
    JsonObject,
    get_json,
    managed_fields,
    patch,
    send_request,
)
from tests.component.kube.sandbox import Kube, Sandbox
from tests.component.kube.widgets import WIDGETS, widget

# Status


async def test_the_status_is_written_only_through_its_subresource(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    created = await send_request(
        kube, "POST", widgets, body=widget("a") | {"status": {"phase": "New"}}
    )
    assert "status" not in created
    assert created["metadata"]["generation"] == 1

    wanted = created | {"status": {"phase": "Old"}, "spec": {"pool": "p", "size": 3}}
    now = await send_request(kube, "PUT", f"{widgets}/a/status", body=wanted)
    assert now["status"] == {"phase": "Old"}
    assert now["spec"]["size"] == 1
    assert now["metadata"]["generation"] == 1

    after = await send_request(
        kube, "PUT", f"{widgets}/a", body=now | {"status": {"phase": "Older"}}
    )
    assert after["status"] == {"phase": "Old"}
    assert after["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"]
    resized = await patch(kube, WIDGETS, "a", {"spec": {"size": 3}})
    assert resized["metadata"]["generation"] == 2


async def test_a_status_write_from_a_stale_revision_is_a_conflict(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    await kube.create(WIDGETS, widget("a"))
    read = await get_json(kube, WIDGETS, "a")
    first = read | {"status": {"phase": "First"}}
    await kube.replace(WIDGETS, first, subresource="status")

    with pytest.raises(Conflict):
        await kube.replace(WIDGETS, read | {"status": {"phase": "Second"}}, subresource="status")
    with pytest.raises(Conflict):
        await kube.merge(
            WIDGETS,
            "a",
            {"status": {"phase": "Second"}},
            resource_version=read["metadata"]["resourceVersion"],
            subresource="status",
        )


# Ownership of maps and sets


async def sized(sandbox: Sandbox, field: str, value: Any) -> tuple[Any, int]:
    """Write a status with this one field; return its owned fields and their size in bytes."""
    kube = sandbox.kube()
    now = await get_json(kube, WIDGETS, "a")
    await kube.replace(WIDGETS, now | {"status": {field: value}}, subresource="status")
    read = await get_json(kube, WIDGETS, "a")
    recorded = next(item for item in managed_fields(read) if item.get("subresource") == "status")
    fields = recorded["fieldsV1"]["f:status"][f"f:{field}"]
    return fields, len(msgspec.json.encode(recorded))


async def test_an_atomic_map_has_one_owned_field_and_another_map_one_for_each_key(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    await kube.create(WIDGETS, widget("a"))
    tokens = {f"{number:032x}": {"token": number} for number in range(500)}

    fields, small = await sized(sandbox, "whole", tokens)
    assert fields == {}
    fields, large = await sized(sandbox, "each", tokens)
    assert len(fields) == 501  # and the map itself
    assert small < 500
    assert large > 20_000


async def test_an_atomic_map_has_one_owner_and_another_map_merges(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    await kube.create(WIDGETS, widget("a"))
    other = sandbox.kube(manager="other")

    async def claim(client: Kube, field: str, key: str) -> JsonObject:
        now = await client.get(WIDGETS, "a")
        wanted = {"metadata": {"name": "a"}, "status": {field: {key: {"token": 1}}}}
        fence = Preconditions(uid=now.metadata.uid, resource_version=now.metadata.resource_version)
        await client.apply(WIDGETS, wanted, force=False, preconditions=fence, subresource="status")
        return await get_json(client, WIDGETS, "a")

    await claim(kube, "each", "x")
    joined = await claim(other, "each", "y")
    assert joined["status"]["each"] == {"x": {"token": 1}, "y": {"token": 1}}

    await claim(kube, "whole", "x")
    with pytest.raises(Conflict) as refused:
        await claim(other, "whole", "y")
    assert refused.value.field_conflicts == (
        FieldConflict(manager=kube.manager, field=".status.whole"),
    )
