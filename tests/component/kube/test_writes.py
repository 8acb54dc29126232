"""Create, read, replace and merge: preconditions, changed fields, and concurrent writers."""

import asyncio

import pytest

from libs.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from libs.kube.resources import CONFIG_MAPS
from tests.builders.objects import config_map
from tests.component.kube.raw_requests import get_json, patch, send_request
from tests.component.kube.sandbox import Kube, Sandbox


async def test_a_created_object_gets_a_uid_a_revision_and_a_time(
    sandbox: Sandbox, kube: Kube
) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a"))

    assert created.metadata.uid
    assert int(created.metadata.resource_version) > 0
    assert created.metadata.creation_timestamp.endswith("Z")
    assert created.metadata.namespace == sandbox.namespace
    read = await kube.get(CONFIG_MAPS, "a")
    assert read == created


async def test_one_of_many_concurrent_creates_succeeds(sandbox: Sandbox, kube: Kube) -> None:
    tries = [kube.create(CONFIG_MAPS, config_map("a", {"by": str(number)})) for number in range(5)]

    results = await asyncio.gather(*tries, return_exceptions=True)

    assert sum(isinstance(result, AlreadyExists) for result in results) == 4


async def test_the_server_generates_names_from_a_prefix(sandbox: Sandbox, kube: Kube) -> None:
    wanted = {"metadata": {"generateName": "a-"}}
    first = await kube.create(CONFIG_MAPS, wanted)
    second = await kube.create(CONFIG_MAPS, wanted)

    assert first.metadata.name.startswith("a-")
    assert len(first.metadata.name) == len("a-") + 5
    assert first.metadata.name != second.metadata.name


async def test_a_create_in_a_missing_namespace_is_not_found(sandbox: Sandbox, kube: Kube) -> None:
    with pytest.raises(NotFound) as missing:
        await kube.create(CONFIG_MAPS, config_map("a"), namespace=f"{sandbox.prefix}none")
    assert missing.value.message == f'namespaces "{sandbox.prefix}none" not found'


async def test_an_invalid_label_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    wrong = config_map("a", labels={"app": "not a value"})
    with pytest.raises(Invalid) as refused:
        await kube.create(CONFIG_MAPS, wrong)
    assert refused.value.code == 422
    assert [cause.field for cause in refused.value.causes] == ["metadata.labels"]


async def test_a_replacement_of_an_old_revision_is_a_conflict(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a"))
    fence = {"resourceVersion": created.metadata.resource_version}
    await kube.replace(CONFIG_MAPS, config_map("a", {"by": "first"}, **fence))

    with pytest.raises(Conflict) as refused:
        await kube.replace(CONFIG_MAPS, config_map("a", {"by": "second"}, **fence))

    assert refused.value.field_conflicts == ()
    assert refused.value.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert (await get_json(kube, CONFIG_MAPS, "a"))["data"] == {"by": "first"}


async def test_a_replacement_of_another_uid_is_a_conflict(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a"))
    other = config_map("a", resourceVersion=created.metadata.resource_version, uid="another")

    with pytest.raises(Conflict) as refused:
        await kube.replace(CONFIG_MAPS, other)
    assert "Precondition failed: UID in precondition: another" in refused.value.message


async def test_a_replacement_removes_omitted_fields(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a", {"old": "1"}, labels={"old": "1"}))
    fence = created.metadata.resource_version

    await kube.replace(CONFIG_MAPS, config_map("a", {"new": "1"}, resourceVersion=fence))

    now = await get_json(kube, CONFIG_MAPS, "a")
    assert now["data"] == {"new": "1"}
    assert "labels" not in now["metadata"]
    assert now["metadata"]["uid"] == created.metadata.uid
    assert now["metadata"]["creationTimestamp"] == created.metadata.creation_timestamp


async def test_a_merge_changes_the_given_fields_and_removes_null_ones(
    sandbox: Sandbox, kube: Kube
) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a", {"keep": "1", "drop": "1"}))

    await kube.merge(
        CONFIG_MAPS,
        "a",
        {"data": {"drop": None, "add": "1"}},
        resource_version=created.metadata.resource_version,
    )

    now = await get_json(kube, CONFIG_MAPS, "a")
    assert now["data"] == {"keep": "1", "add": "1"}


async def test_one_of_two_writers_at_one_revision_fails(sandbox: Sandbox) -> None:
    ours, other = sandbox.kube(manager="one"), sandbox.kube(manager="other")
    created = await ours.create(CONFIG_MAPS, config_map("a"))
    revision = created.metadata.resource_version

    results = await asyncio.gather(
        *(
            kube.merge(CONFIG_MAPS, "a", {"data": {"by": kube.manager}}, resource_version=revision)
            for kube in (ours, other)
        ),
        return_exceptions=True,
    )

    assert sorted(isinstance(result, Conflict) for result in results) == [False, True]


async def test_concurrent_merges_without_a_revision_all_succeed(
    sandbox: Sandbox, kube: Kube
) -> None:
    await kube.create(CONFIG_MAPS, config_map("a"))

    await asyncio.gather(
        *(patch(kube, CONFIG_MAPS, "a", {"data": {f"k{n}": "1"}}) for n in range(8))
    )

    now = await get_json(kube, CONFIG_MAPS, "a")
    assert set(now["data"]) == {f"k{n}" for n in range(8)}


async def test_a_write_without_a_change_keeps_the_revision(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a", {"k": "1"}))
    revision = created.metadata.resource_version

    merged = await kube.merge(CONFIG_MAPS, "a", {"data": {"k": "1"}}, resource_version=revision)
    replaced = await kube.replace(
        CONFIG_MAPS, config_map("a", {"k": "1"}, resourceVersion=revision)
    )

    assert merged.metadata.resource_version == revision
    assert replaced.metadata.resource_version == revision


async def test_an_unsupported_verb_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.request("PUT", CONFIG_MAPS.path(namespace=sandbox.namespace), body={})
    assert refused.value.code == 405


async def test_a_body_of_another_kind_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    with pytest.raises(Invalid) as refused:
        await kube.create(CONFIG_MAPS, wrong)
    assert refused.value.code == 400


async def test_an_unknown_path_is_not_found(kube: Kube) -> None:
    with pytest.raises(NotFound) as missing:
        await kube.request("GET", "/apis/none.example/v1/things")
    assert missing.value.message == "404 page not found"


async def test_a_dry_run_writes_nothing(sandbox: Sandbox, kube: Kube) -> None:
    path = CONFIG_MAPS.path(namespace=sandbox.namespace)
    created = await send_request(kube, "POST", path, body=config_map("a"), dryRun="All")
    assert created["metadata"]["name"] == "a"
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, "a")
