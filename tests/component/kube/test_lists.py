"""Lists: selectors, pages and revisions."""

import pytest

from libs.kube.errors import Invalid, Unavailable
from libs.kube.reads import Page
from libs.kube.resources import CONFIG_MAPS, NODES, PODS
from libs.kube.views import Metadata, Object
from tests.builders.objects import config_map
from tests.component.kube.builders import pod
from tests.component.kube.raw_requests import JsonObject, patch, send_request
from tests.component.kube.sandbox import Kube, Sandbox

ALL = {"suite": "lists"}
MINE = "suite=lists"
"""Selects the test's own objects: controllers create others in every namespace."""


async def fill(sandbox: Sandbox, *names: str) -> list[Metadata]:
    kube = sandbox.kube()
    return [
        (await kube.create(CONFIG_MAPS, config_map(name, labels=ALL | {"n": name}))).metadata
        for name in names
    ]


def names(page: Page[Object]) -> list[str]:
    return [item.metadata.name for item in page.items]


async def selected(sandbox: Sandbox, selector: str) -> list[str]:
    return names(await sandbox.kube().list_page(CONFIG_MAPS, labels=selector))


async def test_a_list_over_all_namespaces_is_sorted_by_namespace_and_name(
    sandbox: Sandbox, kube: Kube
) -> None:
    await fill(sandbox, "a", "b")
    page = await kube.list_page(CONFIG_MAPS)
    keys = [(item.metadata.namespace, item.metadata.name) for item in page.items]
    assert keys == sorted(keys)
    assert (sandbox.namespace, "b") in keys


# Selectors


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n=a", ["a"]),
        ("n==a", ["a"]),
        ("suite=lists,n!=a", ["b", "c"]),
        ("n in (a, b)", ["a", "b"]),
        ("suite=lists,n notin (a,b)", ["c"]),
        ("n", ["a", "b", "c"]),
        ("suite=lists,!n", []),
        ("suite=lists,none!=x", ["a", "b", "c"]),
        ("suite=lists,none notin (x)", ["a", "b", "c"]),
        ("suite=lists,n>5", []),
    ],
)
async def test_labels_select(sandbox: Sandbox, selector: str, expected: list[str]) -> None:
    await fill(sandbox, "a", "b", "c")
    assert await selected(sandbox, selector) == expected


async def test_an_invalid_label_selector_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(Invalid) as refused:
        await selected(sandbox, "n in")
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    assert refused.value.message.startswith("unable to parse requirement: ")


async def test_fields_select_pods_by_node_and_phase(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n")
    other = await sandbox.node("m")
    for name, where in (("a", node), ("b", node), ("c", other), ("d", "")):
        await kube.create(PODS, pod(name, node=where))
    done = {"status": {"phase": "Succeeded"}}
    await patch(kube, PODS, "b", done, subresource="status")

    async def of(fields: str) -> list[str]:
        page = await kube.list_page(PODS, fields=fields)
        return [item.metadata.name for item in page.items]

    assert await of(f"spec.nodeName={node}") == ["a", "b"]
    assert await of("spec.nodeName=") == ["d"]
    assert await of(f"spec.nodeName!={node}") == ["c", "d"]
    assert await of(f"spec.nodeName={node},status.phase=Pending") == ["a"]
    everywhere = await kube.list_page(PODS, fields=f"spec.nodeName={node}")
    assert [item.metadata.name for item in everywhere.items] == ["a", "b"]


async def test_fields_select_cordoned_nodes(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n")
    await sandbox.node("m")
    await patch(kube, NODES, node, {"spec": {"unschedulable": True}})

    page = await kube.list_page(NODES, fields="spec.unschedulable=true")

    mine = [item.metadata.name for item in page.items]
    assert [name for name in mine if name.startswith(sandbox.prefix)] == [node]


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        (
            "/api/v1/configmaps",
            "data.x=1",
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("/api/v1/pods", "spec.foo=1", "field label not supported: spec.foo"),
        (
            "/api/v1/pods",
            "spec.nodeName",
            "invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'",
        ),
    ],
)
async def test_an_unsupported_field_selector_is_refused(
    kube: Kube, path: str, selector: str, message: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.request("GET", path, query={"fieldSelector": selector})
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    assert refused.value.message == message


# Pages


async def test_pages_are_of_one_revision(sandbox: Sandbox, kube: Kube) -> None:
    """Later writes are on none of the pages."""
    await fill(sandbox, "a", "b", "c", "d", "e")
    first = await kube.list_page(CONFIG_MAPS, labels=MINE, limit=2)
    await fill(sandbox, "bb", "f")
    await send_request(kube, "DELETE", CONFIG_MAPS.path(namespace=sandbox.namespace, name="e"))

    pages = [first]
    while pages[-1].continue_token:
        resume = pages[-1].continue_token
        pages.append(await kube.list_page(CONFIG_MAPS, labels=MINE, limit=2, continue_token=resume))

    assert [names(page) for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    assert {page.resource_version for page in pages} == {first.resource_version}


async def test_a_page_counts_the_remaining_items_without_a_selector(
    sandbox: Sandbox, kube: Kube
) -> None:
    node = await sandbox.node("n")
    for name in ("a", "b", "c"):
        await kube.create(PODS, pod(name, node=node))
    path = PODS.path(namespace=sandbox.namespace)

    page = await send_request(kube, "GET", path, limit="1")
    assert page["metadata"]["remainingItemCount"] == 2
    last = await send_request(
        kube, "GET", path, limit="2", **{"continue": page["metadata"]["continue"]}
    )
    assert not {"remainingItemCount", "continue"} & set(last["metadata"])
    page = await send_request(kube, "GET", path, limit="1", fieldSelector=f"spec.nodeName={node}")
    assert "remainingItemCount" not in page["metadata"]


async def test_an_invalid_continue_token_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.list_page(CONFIG_MAPS, continue_token="garbage")
    assert refused.value.code == 400
    assert refused.value.message.startswith("invalid continue token: continue key is not valid")


async def test_a_continued_list_may_not_name_a_revision(sandbox: Sandbox, kube: Kube) -> None:
    await fill(sandbox, "a", "b")
    first = await kube.list_page(CONFIG_MAPS, limit=1)
    with pytest.raises(Invalid) as refused:
        await kube.list_page(
            CONFIG_MAPS,
            continue_token=first.continue_token,
            resource_version=first.resource_version,
        )
    assert refused.value.message == (
        "specifying resource version is not allowed when using continue"
    )


# Revisions


async def exactly(sandbox: Sandbox, revision: str) -> JsonObject:
    return await send_request(
        sandbox.kube(),
        "GET",
        CONFIG_MAPS.path(namespace=sandbox.namespace),
        labelSelector=MINE,
        resourceVersion=revision,
        limit="9",
    )


async def test_a_limited_list_of_a_past_revision_is_exact(sandbox: Sandbox, kube: Kube) -> None:
    _, made = await fill(sandbox, "a", "b")
    await send_request(kube, "DELETE", CONFIG_MAPS.path(namespace=sandbox.namespace, name="a"))
    await fill(sandbox, "c")

    listed = await exactly(sandbox, made.resource_version)

    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    assert listed["metadata"]["resourceVersion"] == made.resource_version


async def test_a_list_at_revision_0_ignores_the_limit(sandbox: Sandbox, kube: Kube) -> None:
    """In one page, whatever the limit."""
    await fill(sandbox, "a", "b", "c")
    await kube.list_page(CONFIG_MAPS)

    page = await kube.list_page(CONFIG_MAPS, labels=MINE, limit=1, resource_version="0")

    assert names(page) == ["a", "b", "c"]
    assert page.continue_token == ""


async def test_a_list_of_a_future_revision_times_out(sandbox: Sandbox, kube: Kube) -> None:
    (made,) = await fill(sandbox, "a")
    future = str(int(made.resource_version) + 1_000_000)

    with pytest.raises(Unavailable) as refused:
        await kube.list_page(CONFIG_MAPS, resource_version=future)

    assert (refused.value.code, refused.value.reason) == (504, "Timeout")
    assert refused.value.message.startswith(
        f"Timeout: Too large resource version: {future}, current: "
    )


async def test_a_list_of_an_unreadable_revision_is_refused(kube: Kube) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.request("GET", CONFIG_MAPS.path(), query={"resourceVersion": "abc"})
    assert refused.value.code == 400
    assert refused.value.message == (
        'invalid resource version: resourceVersion: Invalid value: "abc": '
        'strconv.ParseUint: parsing "abc": invalid syntax'
    )
