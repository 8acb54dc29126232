"""What the server says of itself at each path, in both forms."""

from typing import Any

import msgspec
import pytest

from libs.testing.apiserver import discovery
from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.schemas.schema import Schema
from tests.unit.testing.apiserver_tables.builders import kind

ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
KINDS = list(ResourceKinds())


def widgets(version: str, **fields: Any) -> ResourceKind:
    """A version of a custom kind."""
    return msgspec.structs.replace(
        kind("runtimeclasses", "node.k8s.io"), group="a.test", version=version, plural="widgets",
        singular="widget", kind="Widget", list_kind="WidgetList", schema=Schema(root={}, rules={}),
        **fields,
    )  # fmt: skip


def answer(path: str, kinds: list[ResourceKind] = KINDS, accept: str = "application/json") -> Any:
    return discovery.discovery_document(path, kinds, accept)


def named(entries: list[dict[str, Any]], name: str, field: str = "name") -> dict[str, Any]:
    """The one of them that is called so."""
    (found,) = [entry for entry in entries if entry[field] == name]
    return found


def test_the_version_is_one_that_clients_know() -> None:
    said = answer("/version")
    assert (said["major"], said["minor"]) == ("1", "37")
    assert said["gitVersion"].startswith("v1.37.1")


def test_the_core_versions() -> None:
    assert answer("/api") == {"kind": "APIVersions", "versions": ["v1"]}


def test_the_groups_in_the_order_of_the_real_server() -> None:
    said = answer("/apis", [*KINDS, widgets("v1")])
    assert [group["name"] for group in said["groups"]] == [
        "apps", "authentication.k8s.io", "batch", "policy", "rbac.authorization.k8s.io",
        "apiextensions.k8s.io", "coordination.k8s.io", "node.k8s.io", "a.test",
    ]  # fmt: skip


def test_a_group_prefers_its_most_settled_version() -> None:
    order = ["v11", "v2", "v1", "v3beta1", "v1beta2", "v1beta1", "v2alpha1", "other"]
    said = answer("/apis/a.test", [*KINDS, *(widgets(version) for version in reversed(order))])
    assert said["kind"] == "APIGroup"
    assert [version["version"] for version in said["versions"]] == order
    assert said["preferredVersion"] == {"groupVersion": "a.test/v11", "version": "v11"}


def test_the_resources_of_a_group() -> None:
    assert answer("/apis/policy/v1") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "policy/v1",
        "resources": [
            {
                "name": "poddisruptionbudgets",
                "singularName": "poddisruptionbudget",
                "namespaced": True,
                "kind": "PodDisruptionBudget",
                "verbs": ALL,
                "shortNames": ("pdb",),
            },
            {
                "name": "poddisruptionbudgets/status",
                "singularName": "",
                "namespaced": True,
                "kind": "PodDisruptionBudget",
                "verbs": ("get", "patch", "update"),
            },
        ],
    }


def test_core_resources_with_short_names_categories_and_evictions() -> None:
    resources = answer("/api/v1")["resources"]
    names = [resource["name"] for resource in resources]
    assert names == sorted(names)
    pods = named(resources, "pods")
    assert (pods["shortNames"], pods["categories"]) == (("po",), ("all",))
    assert named(resources, "pods/eviction") == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ("create",),
    }
    assert named(resources, "namespaces/finalize")["kind"] == "Namespace"
    assert "deletecollection" not in named(resources, "namespaces")["verbs"]


def test_all_of_an_api_at_once() -> None:
    said = answer("/api", accept=AGGREGATED)
    assert (said["kind"], said["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    (core,) = said["items"]
    (version,) = core["versions"]
    assert (core["metadata"], version["version"], version["freshness"]) == ({}, "v1", "Current")
    assert named(version["resources"], "pods", "resource") == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": ALL,
        "shortNames": ("po",),
        "categories": ("all",),
        "subresources": [
            {
                "subresource": "binding",
                "responseKind": {"group": "", "version": "", "kind": "Binding"},
                "verbs": ("create",),
            },
            {
                "subresource": "eviction",
                "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
                "verbs": ("create",),
            },
            {
                "subresource": "status",
                "responseKind": {"group": "", "version": "", "kind": "Pod"},
                "verbs": ("get", "patch", "update"),
            },
        ],
    }


def test_custom_kinds_say_their_group_at_once() -> None:
    said = answer("/apis", [*KINDS, widgets("v1", subresources=("status",))], accept=AGGREGATED)
    group = said["items"][-1]
    assert group["metadata"] == {"name": "a.test"}
    (resource,) = group["versions"][0]["resources"]
    whole = {"group": "a.test", "version": "v1", "kind": "Widget"}
    assert (resource["scope"], resource["responseKind"]) == ("Cluster", whole)
    assert resource["subresources"][0]["responseKind"] == whole


def test_both_forms_say_the_same() -> None:
    """Whatever a client asks first, it ends with the same kinds."""
    kinds = [*KINDS, widgets("v1"), widgets("v1beta1", subresources=("status",))]
    items = [
        item for path in ("/api", "/apis") for item in answer(path, kinds, AGGREGATED)["items"]
    ]
    for item in items:
        group = item["metadata"].get("name", "")
        for version in item["versions"]:
            path = f"/apis/{group}" if group else "/api"
            listed = answer(f"{path}/{version['version']}", kinds)["resources"]
            names = [
                name
                for each in version["resources"]
                for name in (
                    each["resource"],
                    *(
                        f"{each['resource']}/{sub['subresource']}"
                        for sub in each.get("subresources", [])
                    ),
                )
            ]
            assert names == [resource["name"] for resource in listed]


@pytest.mark.parametrize(
    "path",
    ["/", "/apis/none", "/apis/apps/v2", "/apis/none/v1", "/api/v2", "/api/v1/pods", "/openapi/v2",
     "/apis/apps/v1/daemonsets"],
)  # fmt: skip
def test_other_paths_are_none_of_its_business(path: str) -> None:
    assert answer(path, accept="text/html") is None


def test_openapi_says_where_fields_are_checked_and_no_more() -> None:
    places = answer("/openapi/v3", [*KINDS, widgets("v1")])["paths"]
    assert places["api/v1"] == {"serverRelativeURL": "/openapi/v3/api/v1"}
    assert places["apis/a.test/v1"] == {"serverRelativeURL": "/openapi/v3/apis/a.test/v1"}
    said = answer(places["apis/a.test/v1"]["serverRelativeURL"], [*KINDS, widgets("v1")])
    assert said["paths"] == {
        "/apis/a.test/v1/widgets/{name}": {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query"}],
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": "a.test",
                    "version": "v1",
                    "kind": "Widget",
                },
            }
        }
    }
    assert said["components"] == {"schemas": {}}


def test_openapi_has_nothing_on_what_is_not_served() -> None:
    assert answer("/openapi/v3/apis/a.test/v1") is None
    assert answer("/openapi/v3/apis/authentication.k8s.io/v1")["paths"] == {}
