"""Server-side apply, and field ownership exactly as a server records it."""

from typing import Any

from libs.kube.resources import CONFIG_MAPS, DAEMON_SETS
from tests.builders.objects import config_map, daemon_set
from tests.component.kube.raw_requests import get_json, managed_fields, managed_fields_entry, patch
from tests.component.kube.sandbox import Kube, Sandbox


async def recorded(sandbox: Sandbox, name: str = "a") -> list[dict[str, Any]]:
    return managed_fields(await get_json(sandbox.kube(), CONFIG_MAPS, name))


async def test_an_apply_creates_a_missing_object(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.apply(CONFIG_MAPS, config_map("a", {"k": "1"}), force=False)

    assert created.metadata.uid
    assert await recorded(sandbox) == [
        managed_fields_entry(kube.manager, "Apply", {"f:data": {"f:k": {}}}),
    ]


async def test_a_create_owns_its_fields_and_the_maps_around_them(
    sandbox: Sandbox, kube: Kube
) -> None:
    await kube.create(
        CONFIG_MAPS, config_map("a", {"k": "1"}, labels={"l": "1"}, annotations={"n": "1"})
    )

    assert await recorded(sandbox) == [
        managed_fields_entry(
            kube.manager,
            "Update",
            {
                "f:data": {".": {}, "f:k": {}},
                "f:metadata": {
                    "f:annotations": {".": {}, "f:n": {}},
                    "f:labels": {".": {}, "f:l": {}},
                },
            },
        ),
    ]


async def test_a_merge_owns_the_fields_that_it_changed(sandbox: Sandbox, kube: Kube) -> None:
    other = sandbox.kube(manager="other")
    await kube.create(CONFIG_MAPS, config_map("a", {"k": "1", "same": "1"}))

    await patch(other, CONFIG_MAPS, "a", {"data": {"k": "2", "same": "1", "new": "1"}})

    by_name = {item["manager"]: item for item in await recorded(sandbox)}
    assert by_name == {
        "other": managed_fields_entry("other", "Update", {"f:data": {"f:k": {}, "f:new": {}}}),
        kube.manager: managed_fields_entry(
            kube.manager, "Update", {"f:data": {".": {}, "f:same": {}}}
        ),
    }


async def test_a_replacement_without_a_field_removes_its_owner(
    sandbox: Sandbox, kube: Kube
) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a", {"k": "1", "gone": "1"}))
    other = sandbox.kube(manager="other")

    await other.replace(
        CONFIG_MAPS, config_map("a", {"k": "1"}, resourceVersion=created.metadata.resource_version)
    )

    assert await recorded(sandbox) == [
        managed_fields_entry(kube.manager, "Update", {"f:data": {".": {}, "f:k": {}}}),
    ]


async def test_an_object_without_owned_fields_has_owners_from_the_first_apply_on(
    sandbox: Sandbox, kube: Kube
) -> None:
    """Its earlier fields belong to one manager whose name the server invents."""
    other = sandbox.kube(manager="other")
    await other.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    await patch(other, CONFIG_MAPS, "a", {"data": {"k": "1"}})
    assert await recorded(sandbox) == []

    await kube.apply(CONFIG_MAPS, config_map("a", {"mine": "1"}), force=False)

    assert await recorded(sandbox) == [
        managed_fields_entry(kube.manager, "Apply", {"f:data": {"f:mine": {}}}),
        managed_fields_entry("before-first-apply", "Update", {"f:data": {".": {}, "f:k": {}}}),
    ]


async def test_an_apply_removes_the_fields_that_it_omits_and_owned_alone(
    sandbox: Sandbox, kube: Kube
) -> None:
    other = sandbox.kube(manager="other")
    await kube.apply(CONFIG_MAPS, config_map("a", {"ours": "1", "shared": "1"}), force=False)
    await other.apply(CONFIG_MAPS, config_map("a", {"shared": "1"}), force=False)

    await kube.apply(CONFIG_MAPS, {"metadata": {"name": "a"}}, force=False)

    now = await get_json(kube, CONFIG_MAPS, "a")
    assert now["data"] == {"shared": "1"}
    assert managed_fields(now) == [
        managed_fields_entry("other", "Apply", {"f:data": {"f:shared": {}}})
    ]


async def test_force_takes_only_the_applied_fields_from_their_owner(
    sandbox: Sandbox, kube: Kube
) -> None:
    other = sandbox.kube(manager="other")
    await other.apply(CONFIG_MAPS, config_map("a", {"k": "1", "his": "1"}), force=False)

    await kube.apply(CONFIG_MAPS, config_map("a", {"k": "2"}), force=True)

    by_name = {item["manager"]: item for item in await recorded(sandbox)}
    assert by_name == {
        "other": managed_fields_entry("other", "Apply", {"f:data": {"f:his": {}}}),
        kube.manager: managed_fields_entry(kube.manager, "Apply", {"f:data": {"f:k": {}}}),
    }


async def test_list_items_have_owners_by_their_key(sandbox: Sandbox, kube: Kube) -> None:
    def containers(*names: str) -> dict[str, Any]:
        wanted = daemon_set("d", selector={"on": "no-node"})
        wanted["spec"]["template"]["spec"]["containers"] = [
            {"name": name, "image": "none"} for name in names
        ]
        return wanted

    other = sandbox.kube(manager="other")
    await kube.apply(DAEMON_SETS, containers("ours", "both"), force=False)
    await other.apply(DAEMON_SETS, containers("both", "his"), force=False)
    await kube.apply(DAEMON_SETS, containers("both"), force=False)
    now = await get_json(kube, DAEMON_SETS, "d")
    names = [item["name"] for item in now["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["both", "his"]
    fields = next(item for item in managed_fields(now) if item["manager"] == "other")["fieldsV1"]
    assert fields["f:spec"]["f:template"]["f:spec"]["f:containers"] == {
        'k:{"name":"both"}': {".": {}, "f:image": {}, "f:name": {}},
        'k:{"name":"his"}': {".": {}, "f:image": {}, "f:name": {}},
    }


async def test_each_finalizer_has_its_own_owners(sandbox: Sandbox, kube: Kube) -> None:
    other = sandbox.kube(manager="other")
    for client, name in ((kube, "sluice.dev/ours"), (other, "sluice.dev/his")):
        await client.apply(CONFIG_MAPS, config_map("a", finalizers=[name]), force=False)
    both = await kube.get(CONFIG_MAPS, "a")
    assert sorted(both.metadata.finalizers) == ["sluice.dev/his", "sluice.dev/ours"]

    left = await kube.apply(CONFIG_MAPS, {"metadata": {"name": "a"}}, force=False)

    assert left.metadata.finalizers == ("sluice.dev/his",)
    await other.apply(CONFIG_MAPS, {"metadata": {"name": "a"}}, force=False)


async def test_managed_fields_can_be_cleared(sandbox: Sandbox, kube: Kube) -> None:
    await kube.apply(CONFIG_MAPS, config_map("a", {"k": "1"}), force=False)

    await patch(kube, CONFIG_MAPS, "a", {"metadata": {"managedFields": [{}]}})

    assert await recorded(sandbox) == []
