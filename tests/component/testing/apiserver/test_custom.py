"""CustomResourceDefinitions: a kind comes, its objects are judged, and it goes."""

from typing import Any

from libs.kube import resources
from libs.testing.apiserver.schemas.rules import Predicate
from tests.component.testing.apiserver.world import (
    APPLY,
    CUSTOM_OBJECTS,
    DEFINITIONS,
    MERGE,
    ApiServerWorld,
    JsonObject,
    describe_event,
    events,
    run_world,
)

RULE = "self.n < 10"


def definition(**more: Any) -> JsonObject:
    """A kind with a status and two versions."""
    n = {"type": "integer", "minimum": 1}
    spec = {
        "type": "object",
        "properties": {"a": {"type": "string", "default": "x"}, "n": n},
        "x-kubernetes-validations": [{"rule": RULE, "message": "too many"}],
    }
    status = {"type": "object", "properties": {"p": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    first = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.a"}],
        "schema": {"openAPIV3Schema": schema},
    }
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    second = {
        "name": "v2",
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": loose},
    }
    return {
        "metadata": {"name": "things.x.dev"},
        "spec": {
            "group": "x.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [first, second],
            **more,
        },
    }


def thing(name: str, **spec: Any) -> JsonObject:
    """One object of it."""
    return {"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


def few(value: Any, _: Any) -> bool:
    """What the rule's text stands for."""
    return value.get("n", 0) < 10


def rules() -> dict[str, Predicate]:
    """The rule and its predicate."""
    return {RULE: few}


def test_a_kind_is_served_from_its_definition_on() -> None:
    async def main(town: ApiServerWorld) -> None:
        assert (await town.ask("GET", CUSTOM_OBJECTS))[0] == 404
        assert (await town.ask("POST", DEFINITIONS, definition()))[0] == 201
        made = await town.kube.get(resources.CUSTOM_RESOURCE_DEFINITIONS, "things.x.dev")
        assert {each.type: each.status for each in made.status.conditions or ()} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        body = {**thing("t", n=2, zz=1), "status": {"p": "q"}}
        code, first = await town.ask("POST", CUSTOM_OBJECTS, body)
        assert (code, first["spec"]) == (201, {"a": "x", "n": 2})
        assert "status" not in first
        assert first["metadata"]["generation"] == 1
        code, refused = await town.ask("POST", CUSTOM_OBJECTS, thing("u", n=0))
        assert (code, refused["details"]["causes"][0]["field"]) == (422, "spec.n")
        code, refused = await town.ask("POST", CUSTOM_OBJECTS, thing("u", n=12))
        assert (code, "too many" in refused["message"]) == (422, True)

    run_world(main, rules=rules())


def test_generation_counts_what_is_wanted_and_status_is_apart() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.ask("POST", DEFINITIONS, definition())
        await town.ask("POST", CUSTOM_OBJECTS, thing("t", n=2))
        status = {"metadata": {"labels": {"a": "b"}}, "spec": {"n": 3}, "status": {"p": "q"}}
        _, now = await town.ask("PATCH", f"{CUSTOM_OBJECTS}/t/status", status, content_type=MERGE)
        assert (now["spec"]["n"], now["status"], now["metadata"]["generation"]) == (
            2,
            {"p": "q"},
            1,
        )
        assert "labels" not in now["metadata"]
        _, now = await town.ask("PATCH", f"{CUSTOM_OBJECTS}/t", status, content_type=MERGE)
        assert (now["spec"]["n"], now["metadata"]["generation"]) == (3, 2)
        wanted = {**thing("t"), "status": {"p": "z"}}
        del wanted["spec"]
        code, refused = await town.ask(
            "PATCH", f"{CUSTOM_OBJECTS}/t/status", wanted, content_type=APPLY, fieldManager="m"
        )
        words = 'conflict with "admin" with subresource "status" using x.dev/v1'
        assert (code, refused["details"]["causes"][0]["message"]) == (409, words)

    run_world(main, rules=rules())


def test_versions_differ_by_name() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.ask("POST", DEFINITIONS, definition())
        start = town.server.revision
        await town.ask("POST", CUSTOM_OBJECTS, thing("t", n=2))
        other = CUSTOM_OBJECTS.replace("v1", "v2")
        _, one = await town.ask("GET", f"{other}/t")
        assert one["apiVersion"] == "x.dev/v2"
        _, listed = await town.ask("GET", other)
        assert [each["apiVersion"] for each in listed["items"]] == ["x.dev/v2"]
        patch = {"spec": {"n": 3}}
        _, now = await town.ask("PATCH", f"{other}/t", patch, content_type=MERGE)
        assert (now["apiVersion"], now["spec"]["n"]) == ("x.dev/v2", 3)
        query = {"watch": "1", "resourceVersion": str(start), "timeoutSeconds": "1"}
        async with town.kube.stream(other, query=query) as answer:
            heard = [event async for event in events(answer)]
        assert [event["object"]["apiVersion"] for event in heard] == ["x.dev/v2"] * 2
        _, first = await town.ask("GET", CUSTOM_OBJECTS, fieldSelector="spec.a=x")
        assert [each["apiVersion"] for each in first["items"]] == ["x.dev/v1"]

    run_world(main, rules=rules())


def test_what_was_stored_in_another_version_is_served_in_any() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.ask("POST", DEFINITIONS, definition())
        start = town.server.revision
        await town.ask("POST", CUSTOM_OBJECTS, thing("t", n=2))
        moved = definition()["spec"]["versions"]
        moved[0]["storage"], moved[1]["storage"] = False, True
        moved[1]["name"] = "v1beta1"
        path = f"{DEFINITIONS}/things.x.dev"
        spec = {"spec": {"versions": moved}}
        assert (await town.ask("PATCH", path, spec, content_type=MERGE))[0] == 200
        other = CUSTOM_OBJECTS.replace("v1", "v1beta1")
        for where, version in ((CUSTOM_OBJECTS, "x.dev/v1"), (other, "x.dev/v1beta1")):
            _, listed = await town.ask("GET", where)
            assert [each["apiVersion"] for each in listed["items"]] == [version]
            _, one = await town.ask("GET", f"{where}/t")
            assert (one["apiVersion"], one["kind"], one["spec"]["n"]) == (version, "Thing", 2)
            query = {"watch": "1", "resourceVersion": str(start), "timeoutSeconds": "1"}
            async with town.kube.stream(where, query=query) as answer:
                heard = [event async for event in events(answer)]
            assert [event["object"]["apiVersion"] for event in heard] == [version]

    run_world(main, rules=rules())


def test_a_definition_goes_with_the_last_of_its_objects() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.ask("POST", DEFINITIONS, definition())
        start = town.server.revision
        await town.ask("POST", CUSTOM_OBJECTS, thing("t"))
        held = thing("u")
        held["metadata"]["finalizers"] = ["x.dev/hold"]
        await town.ask("POST", CUSTOM_OBJECTS, held)
        query = {"watch": "1", "resourceVersion": str(start), "timeoutSeconds": "5"}
        async with town.kube.stream(CUSTOM_OBJECTS, query=query) as answer:
            assert (await town.ask("DELETE", f"{DEFINITIONS}/things.x.dev"))[0] == 200
            code, refused = await town.ask("POST", CUSTOM_OBJECTS, thing("v"))
            assert (code, "is terminating" in refused["message"]) == (403, True)
            assert (await town.ask("GET", f"{DEFINITIONS}/things.x.dev"))[0] == 200
            none = {"metadata": {"finalizers": None}}
            assert (await town.ask("PATCH", f"{CUSTOM_OBJECTS}/u", none, content_type=MERGE))[
                0
            ] == 200
            heard = [describe_event(event) async for event in events(answer)]
        assert heard == [
            ("ADDED", "t"),
            ("ADDED", "u"),
            ("DELETED", "t"),
            ("MODIFIED", "u"),
            ("DELETED", "u"),
        ]
        assert (await town.ask("GET", f"{DEFINITIONS}/things.x.dev"))[0] == 404
        assert (await town.ask("GET", CUSTOM_OBJECTS))[0] == 404

    run_world(main, rules=rules())


def test_a_definition_that_cannot_be_is_refused() -> None:
    async def main(town: ApiServerWorld) -> None:
        wrong = definition()
        wrong["metadata"]["name"] = "thing.x.dev"
        wrong["spec"]["versions"][0]["storage"] = False
        wrong["spec"]["versions"][1]["schema"] = None
        code, refused = await town.ask("POST", DEFINITIONS, wrong)
        fields = [each["field"] for each in refused["details"]["causes"]]
        assert (code, fields) == (
            422,
            ["metadata.name", "spec.versions", "spec.versions[1].schema.openAPIV3Schema"],
        )
        await town.ask("POST", DEFINITIONS, definition())
        other = {"spec": {"scope": "Cluster"}}
        path = f"{DEFINITIONS}/things.x.dev"
        code, refused = await town.ask("PATCH", path, other, content_type=MERGE)
        assert (code, refused["details"]["causes"][0]["field"]) == (422, "spec.scope")

    run_world(main, rules=rules())
