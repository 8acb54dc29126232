"""Creates, updates, patches and deletes: codes, fences, revisions, and who owns what."""

import pytest

from libs.kube import resources
from libs.kube.client import Preconditions
from libs.kube.errors import Conflict, Invalid, NotFound
from tests.component.testing.apiserver.world import (
    APPLY,
    CONFIG,
    MERGE,
    NODES,
    PODS,
    ApiServerWorld,
    run_world,
)


def test_a_node_is_created_with_all_that_a_server_gives_it() -> None:
    async def main(town: ApiServerWorld) -> None:
        code, node = await town.ask(
            "POST", NODES, {"metadata": {"name": "n1"}, "status": {"nodeInfo": {"bootID": "b"}}}
        )
        assert code == 201
        assert node["metadata"]["creationTimestamp"] == "2027-01-15T08:00:00Z"
        assert node["metadata"]["resourceVersion"] == str(town.server.revision)
        assert len(node["metadata"]["uid"]) == 36
        assert node["status"]["nodeInfo"]["bootID"] == "b"
        assert node["spec"]["taints"] == [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        ]
        code, again = await town.ask("POST", NODES, {"metadata": {"name": "n1"}})
        assert (code, again["reason"]) == (409, "AlreadyExists")
        assert again["message"] == 'nodes "n1" already exists'

    run_world(main)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "N_1"}, "metadata.name"),
        ({}, "metadata.name"),
        ({"name": "n", "labels": {"a": "b c"}}, "metadata.labels"),
        ({"name": "n", "labels": {"-a": "b"}}, "metadata.labels"),
        ({"name": "n", "finalizers": ["a b"]}, "metadata.finalizers"),
        ({"name": "n", "ownerReferences": [{"kind": "A", "name": "b", "uid": "c"}]}, None),
    ],
)
def test_metadata_that_cannot_be_is_refused_and_says_where(
    metadata: dict[str, object], field: str | None
) -> None:
    async def main(town: ApiServerWorld) -> None:
        code, refused = await town.ask("POST", NODES, {"metadata": metadata})
        assert (code, refused["reason"]) == (422, "Invalid")
        fields = [each["field"] for each in refused["details"]["causes"]]
        assert fields == [field or "metadata.ownerReferences[0].apiVersion"]

    run_world(main)


def test_of_two_writers_who_read_the_same_revision_one_fails() -> None:
    async def main(town: ApiServerWorld) -> None:
        node = await town.node("n1")
        at = node["metadata"]["resourceVersion"]
        ann, bob = town.client("ann"), town.client("bob")
        await ann.merge(
            resources.NODES, "n1", {"metadata": {"labels": {"a": "1"}}}, resource_version=at
        )
        with pytest.raises(Conflict, match="the object has been modified"):
            await bob.merge(
                resources.NODES, "n1", {"metadata": {"labels": {"b": "1"}}}, resource_version=at
            )
        node["metadata"]["labels"] = {"c": "1"}
        with pytest.raises(Conflict, match="the object has been modified"):
            await bob.replace(resources.NODES, node)
        assert (await bob.get(resources.NODES, "n1")).metadata.labels == {"a": "1"}

    run_world(main)


def test_what_changes_nothing_writes_nothing() -> None:
    async def main(town: ApiServerWorld) -> None:
        node = await town.node("n1", a="b")
        at = town.server.revision
        patch = {"metadata": {"labels": {"a": "b"}}}
        code, same = await town.ask("PATCH", f"{NODES}/n1", patch, content_type=MERGE)
        assert (code, same) == (200, node)
        del node["metadata"]["resourceVersion"]
        code, _ = await town.ask("PUT", f"{NODES}/n1", node)
        assert code == 200
        wanted = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "labels": {"z": "1"}},
        }
        for _ in range(3):
            code, _ = await town.ask(
                "PATCH", f"{NODES}/n1", wanted, content_type=APPLY, fieldManager="m"
            )
            assert code == 200
        assert town.server.revision == at + 1

    run_world(main)


def test_an_apply_with_a_guard_never_makes_a_ghost() -> None:
    async def main(town: ApiServerWorld) -> None:
        node = await town.node("n1")
        uid, at = node["metadata"]["uid"], node["metadata"]["resourceVersion"]
        guard = Preconditions(uid=uid, resource_version=at)
        wanted = {"metadata": {"name": "n1", "labels": {"a": "b"}}}
        applied = await town.kube.apply(resources.NODES, wanted, force=True, preconditions=guard)
        assert applied.metadata.labels == {"a": "b"}
        stale = {"metadata": {"name": "n1", "labels": {"a": "c"}}}
        with pytest.raises(Conflict, match="the object has been modified"):
            await town.kube.apply(resources.NODES, stale, force=True, preconditions=guard)
        await town.kube.delete(resources.NODES, "n1", uid=uid)
        with pytest.raises(NotFound):
            await town.kube.apply(resources.NODES, wanted, force=True, preconditions=guard)
        await town.node("n1")
        with pytest.raises(NotFound):
            await town.kube.apply(resources.NODES, wanted, force=True, preconditions=guard)
        assert (await town.kube.get(resources.NODES, "n1")).metadata.labels == {}

    run_world(main)


def test_an_apply_says_who_owns_what_it_may_not_take() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1", a="b")
        wanted = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "labels": {"a": "c"}},
        }
        code, refused = await town.ask(
            "PATCH", f"{NODES}/n1", wanted, content_type=APPLY, fieldManager="m"
        )
        assert code == 409
        assert refused["details"]["causes"] == [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "admin" using v1',
                "field": ".metadata.labels.a",
            }
        ]

    run_world(main)


def test_status_and_the_rest_are_written_apart() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1", a="b")
        both = {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "1"}}}
        _, node = await town.ask("PATCH", f"{NODES}/n1", both, content_type=MERGE)
        assert node["spec"]["unschedulable"] is True
        assert "capacity" not in node["status"]
        both = {"spec": {"unschedulable": False}, "status": {"capacity": {"cpu": "2"}}}
        _, node = await town.ask("PATCH", f"{NODES}/n1/status", both, content_type=MERGE)
        assert node["spec"]["unschedulable"] is True
        assert node["status"]["capacity"] == {"cpu": "2"}
        owners = [
            (each["manager"], each.get("subresource", ""), sorted(each["fieldsV1"]))
            for each in node["metadata"]["managedFields"]
        ]
        assert owners == [
            ("admin", "", ["f:metadata", "f:spec"]),
            ("admin", "status", ["f:status"]),
        ]

    run_world(main)


def test_the_unfenced_put_is_for_some_kinds_only() -> None:
    async def main(town: ApiServerWorld) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
        assert (await town.ask("PUT", leases, lease))[0] == 201
        code, refused = await town.ask("PUT", leases, lease)
        assert (code, refused["details"]["causes"][0]["field"]) == (
            422,
            "metadata.resourceVersion",
        )
        await town.node("n1")
        assert (await town.ask("PUT", f"{NODES}/n1", {"metadata": {"name": "n1"}}))[0] == 200
        code, refused = await town.ask("PUT", f"{NODES}/n2", {"metadata": {"name": "n2"}})
        assert (code, refused["message"]) == (404, 'nodes "n2" not found')

    run_world(main)


def test_a_dry_run_answers_and_stores_nothing() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.config("a")
        at = town.server.revision
        new = {"metadata": {"name": "b"}}
        assert (await town.ask("POST", CONFIG, new, dryRun="All"))[0] == 201
        patch = {"data": {"k": "v"}}
        _, dry = await town.ask("PATCH", f"{CONFIG}/a", patch, content_type=MERGE, dryRun="All")
        assert dry["data"] == {"k": "v"}
        assert (await town.ask("DELETE", f"{CONFIG}/a", dryRun="All"))[0] == 200
        assert town.server.revision == at
        options = {"dryRun": ["All"]}
        assert (await town.ask("DELETE", f"{CONFIG}/a", options))[0] == 200
        assert (await town.ask("DELETE", f"{CONFIG}/b", dryRun="All"))[0] == 404
        assert town.server.revision == at
        assert len(town.server.journal) == 1

    run_world(main)


def test_a_name_is_made_of_a_prefix() -> None:
    async def main(town: ApiServerWorld) -> None:
        names = set[str]()
        for _ in range(20):
            _, made = await town.ask("POST", CONFIG, {"metadata": {"generateName": "a-"}})
            names.add(made["metadata"]["name"])
        assert len(names) == 20
        assert all(len(name) == 7 and name.startswith("a-") for name in names)

    run_world(main)


def test_nothing_comes_into_a_namespace_that_is_not_there_or_goes() -> None:
    async def main(town: ApiServerWorld) -> None:
        path = "/api/v1/namespaces/x/configmaps"
        code, refused = await town.ask("POST", path, {"metadata": {"name": "a"}})
        assert (code, refused["message"]) == (404, 'namespaces "x" not found')
        await town.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
        assert (await town.ask("POST", path, {"metadata": {"name": "a"}}))[0] == 201
        _, going = await town.ask("DELETE", "/api/v1/namespaces/x")
        assert going["status"]["phase"] == "Terminating"
        code, refused = await town.ask("POST", path, {"metadata": {"name": "b"}})
        assert (code, refused["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
        final = {"metadata": {"name": "x"}, "spec": {"finalizers": []}}
        assert (await town.ask("PUT", "/api/v1/namespaces/x/finalize", final))[0] == 200
        assert (await town.ask("GET", "/api/v1/namespaces/x"))[0] == 404

    run_world(main)


def test_a_finalizer_holds_an_object_until_it_is_taken_away() -> None:
    async def main(town: ApiServerWorld) -> None:
        body = {"metadata": {"name": "a", "finalizers": ["x.dev/hold"]}}
        await town.ask("POST", CONFIG, body)
        _, marked = await town.ask("DELETE", f"{CONFIG}/a")
        assert marked["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:00Z"
        more = {"metadata": {"finalizers": ["x.dev/hold", "x.dev/more"]}}
        code, _ = await town.ask("PATCH", f"{CONFIG}/a", more, content_type=MERGE)
        assert code == 422
        none = {"metadata": {"finalizers": None}}
        assert (await town.ask("PATCH", f"{CONFIG}/a", none, content_type=MERGE))[0] == 200
        assert (await town.ask("GET", f"{CONFIG}/a"))[0] == 404

    run_world(main)


def test_a_delete_may_be_of_one_uid_and_revision_only() -> None:
    async def main(town: ApiServerWorld) -> None:
        made = await town.config("a")
        for must in ({"uid": "other"}, {"resourceVersion": "1"}):
            code, refused = await town.ask("DELETE", f"{CONFIG}/a", {"preconditions": must})
            assert (code, refused["reason"]) == (409, "Conflict")
        must = {
            "uid": made["metadata"]["uid"],
            "resourceVersion": made["metadata"]["resourceVersion"],
        }
        code, done = await town.ask("DELETE", f"{CONFIG}/a", {"preconditions": must})
        assert (code, done["status"], done["details"]["uid"]) == (200, "Success", must["uid"])

    run_world(main)


def test_a_pod_goes_when_its_grace_is_over() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.pod("p1")
        _, pod = await town.ask("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 60})
        assert pod["metadata"]["deletionTimestamp"] == "2027-01-15T08:01:00Z"
        await town.sim.clock.sleep(5)
        _, pod = await town.ask("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 90})
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 60
        _, pod = await town.ask("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 10})
        assert pod["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:10Z"
        assert (await town.ask("GET", f"{PODS}/p1"))[0] == 200
        await town.ask("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
        assert (await town.ask("GET", f"{PODS}/p1"))[0] == 404
        await town.pod("p2", phase="Succeeded")
        await town.ask("DELETE", f"{PODS}/p2")
        assert (await town.ask("GET", f"{PODS}/p2"))[0] == 404

    run_world(main)


def test_a_pod_keeps_its_spec_and_a_daemon_set_its_selector() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.pod("p1")
        other = {"spec": {"nodeName": "n2"}}
        with pytest.raises(Invalid, match="pod updates may not change fields"):
            await town.kube.request("PATCH", f"{PODS}/p1", body=other, content_type=MERGE)
        image = {"spec": {"containers": [{"name": "c", "image": "y"}]}}
        strategic = "application/strategic-merge-patch+json"
        code, pod = await town.ask("PATCH", f"{PODS}/p1", image, content_type=strategic)
        assert (code, pod["metadata"]["generation"]) == (200, 2)
        daemons = "/apis/apps/v1/namespaces/default/daemonsets"
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        }
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        code, made = await town.ask("POST", daemons, {"metadata": {"name": "d"}, "spec": spec})
        assert (code, made["spec"]["revisionHistoryLimit"]) == (201, 10)
        assert made["spec"]["updateStrategy"]["rollingUpdate"] == {
            "maxSurge": 0,
            "maxUnavailable": 1,
        }
        other = {"spec": {"selector": {"matchLabels": {"a": "c"}}}}
        code, refused = await town.ask("PATCH", f"{daemons}/d", other, content_type=MERGE)
        fields = [each["field"] for each in refused["details"]["causes"]]
        assert (code, fields) == (422, ["spec.selector", "spec.template.metadata.labels"])

    run_world(main)


def test_what_is_not_served_is_refused_in_words() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.pod("p1")
        code, refused = await town.ask("GET", f"{PODS}/p1/log")
        assert (code, "does not serve pods/log" in refused["message"]) == (501, True)
        assert (await town.ask("GET", "/apis/nope/v1/things"))[0] == 404
        code, refused = await town.ask("GET", "/api/v1/nopes")
        assert refused["message"] == "the server could not find the requested resource"
        assert (await town.ask("POST", f"{NODES}/n1"))[0] == 405
        strict = {"metadata": {"name": "a"}, "dat": {}}
        code, refused = await town.ask("POST", CONFIG, strict, fieldValidation="Strict")
        assert (code, refused["message"].endswith('unknown field "dat"')) == (400, True)

    run_world(main)
