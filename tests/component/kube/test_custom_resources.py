"""Custom kinds: establishment, defaults, pruning, validation and tables."""

from typing import Any

import pytest

from libs.kube.errors import Invalid, NotFound, StatusCause
from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from tests.component.kube.raw_requests import (
    JsonObject,
    get_json,
    managed_fields,
    patch,
    raw_watch,
    send_request,
)
from tests.component.kube.sandbox import Kube, Sandbox
from tests.component.kube.widgets import GROUP, WIDGETS, Widget, definition, widget
from tests.support import eventually

UNCHECKED = ("FieldValueInvalid", "<nil>")
"""The cause for rules that were skipped because the object is invalid."""


async def refused(sandbox: Sandbox, wanted: JsonObject) -> list[tuple[str, str]]:
    """Create a widget that must be refused; return reasons and fields of the causes."""
    with pytest.raises(Invalid) as refused:
        await sandbox.kube().create(WIDGETS, wanted)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    return sorted((cause.reason, cause.field) for cause in refused.value.causes)


async def test_an_unknown_kind_is_not_found(sandbox: Sandbox, kube: Kube) -> None:
    gadgets = Resource(
        group=f"none.{GROUP}", version="v1alpha1", plural="gadgets", kind="Gadget", view=Widget
    )
    with pytest.raises(NotFound) as missing:
        await kube.list_page(gadgets)
    assert missing.value.code == 404
    assert missing.value.reason == ""  # a missing object has the reason NotFound


async def test_a_kind_is_served_once_it_is_established_and_gone_with_objects_and_watches(
    sandbox: Sandbox, kube: Kube
) -> None:
    plural = f"w{sandbox.prefix.rstrip('-')}s"
    kind = plural.capitalize().rstrip("s")
    own = Resource(group=GROUP, version="v1alpha1", plural=plural, kind=kind, view=Widget)
    name = f"{plural}.{GROUP}"
    sandbox.delete_at_close(CUSTOM_RESOURCE_DEFINITIONS, name)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    created = await kube.create(
        CUSTOM_RESOURCE_DEFINITIONS, definition(plural=plural, kind=kind, schema=schema)
    )
    assert created.status.conditions == ()

    async def conditions() -> dict[str, str]:
        now = await kube.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        return {item.type: item.status for item in now.status.conditions}

    async def established() -> bool:
        return (await conditions()).get("Established") == "True"

    await eventually(established)
    assert (await conditions())["NamesAccepted"] == "True"
    assert (await kube.list_page(own)).items == ()
    listed = await send_request(kube, "GET", f"/apis/{GROUP}/v1alpha1")
    served = {item["name"]: item for item in listed["resources"]}
    assert served[plural]["kind"] == kind
    assert served[plural]["namespaced"] is True
    assert f"{plural}/status" in served

    definition_now = await kube.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    async with raw_watch(kube, own.path(), resourceVersion="0") as watched:
        await kube.delete(CUSTOM_RESOURCE_DEFINITIONS, name, uid=definition_now.metadata.uid)
        assert await watched.rest() == []

    async def gone() -> bool:
        try:
            await kube.list_page(own)
        except NotFound:
            return True
        return False

    await eventually(gone)


async def test_a_definition_must_have_the_name_of_its_kind(sandbox: Sandbox, kube: Kube) -> None:
    wrong = definition()
    wrong["metadata"]["name"] = f"other.{GROUP}"
    with pytest.raises(Invalid) as refused:
        await kube.create(CUSTOM_RESOURCE_DEFINITIONS, wrong)
    assert "metadata.name" in [cause.field for cause in refused.value.causes]


# Defaults and pruning


async def test_omitted_fields_have_their_defaults(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    """A default applies inside a default object, and not inside a missing one."""
    created = await send_request(kube, "POST", widgets, body=widget("a", steps=[{"name": "x"}]))
    assert created["spec"] == {
        "pool": "p",
        "size": 1,
        "mode": "None",
        "nested": {"deep": True},
        "steps": [{"name": "x", "seconds": 5}],
    }


async def test_null_counts_as_omitted(sandbox: Sandbox, kube: Kube, widgets: str) -> None:
    created = await send_request(kube, "POST", widgets, body=widget("a", size=None, labels=None))
    assert created["spec"]["size"] == 1
    assert "labels" not in created["spec"]


async def test_a_default_comes_back_when_its_field_is_removed(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    await send_request(kube, "POST", widgets, body=widget("a", size=7, optional={}))
    now = await patch(kube, WIDGETS, "a", {"spec": {"size": None}})
    assert now["spec"]["size"] == 1
    assert now["spec"]["optional"] == {"inner": "there"}


async def test_unknown_fields_are_pruned(sandbox: Sandbox, kube: Kube, widgets: str) -> None:
    wanted = widget(
        "a",
        unknown=1,
        nested={"deep": True, "unknown": 1},
        free={"anything": {"goes": 1}},
        labels={"any": "key"},
    )
    wanted["other"] = {"k": 1}
    wanted["metadata"]["labels"] = {"kept": "yes"}

    created = await send_request(kube, "POST", widgets, body=wanted)

    assert "other" not in created
    assert "unknown" not in created["spec"]
    assert created["spec"]["nested"] == {"deep": True}
    assert created["spec"]["free"] == {"anything": {"goes": 1}}
    assert created["spec"]["labels"] == {"any": "key"}
    assert created["metadata"]["labels"] == {"kept": "yes"}


# Validation


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"pool": None}, [UNCHECKED, ("FieldValueRequired", "spec.pool")]),
        ({"pool": ""}, [("FieldValueInvalid", "spec.pool")]),
        ({"pool": "p" * 21}, [UNCHECKED, ("FieldValueTooLong", "spec.pool")]),
        ({"pool": 1}, [UNCHECKED, ("FieldValueTypeInvalid", "spec.pool")]),
        ({"size": "1"}, [UNCHECKED, ("FieldValueTypeInvalid", "spec.size")]),
        ({"size": 1.5}, [UNCHECKED, UNCHECKED, ("FieldValueTypeInvalid", "spec.size")]),
        ({"size": 11}, [("FieldValueInvalid", "spec.size")]),
        ({"size": -1}, [("FieldValueInvalid", "spec.size")]),
        ({"mode": "Never"}, [UNCHECKED, ("FieldValueNotSupported", "spec.mode")]),
        ({"digest": "xyz"}, [("FieldValueInvalid", "spec.digest")]),
        ({"labels": {"k": 1}}, [UNCHECKED, ("FieldValueTypeInvalid", "spec.labels.k")]),
        ({"nested": []}, [UNCHECKED, ("FieldValueTypeInvalid", "spec.nested")]),
        ({"steps": [{}]}, [UNCHECKED, ("FieldValueRequired", "spec.steps[0].name")]),
        (
            {"steps": [{"name": "a"}, {"name": "a"}]},
            [("FieldValueDuplicate", "spec.steps[1]")],
        ),
        (
            {"steps": [{"name": n} for n in "abcd"]},
            [UNCHECKED, ("FieldValueTooMany", "spec.steps")],
        ),
        (
            {"size": 11, "mode": "Never"},
            [
                UNCHECKED,
                ("FieldValueInvalid", "spec.size"),
                ("FieldValueNotSupported", "spec.mode"),
            ],
        ),
    ],
    ids=repr,
)
async def test_an_invalid_object_is_refused_with_all_causes(
    sandbox: Sandbox, widgets: str, spec: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert await refused(sandbox, widget("a", **spec)) == causes


async def test_a_refusal_has_message_and_causes(sandbox: Sandbox, kube: Kube, widgets: str) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.create(WIDGETS, widget("a", mode="Never"))
    unsupported = 'Unsupported value: "Never": supported values: "None", "Pause", "Freeze"'
    unchecked = (
        "Invalid value: null: some validation rules were not checked because the object was "
        "invalid; correct the existing errors to complete validation"
    )
    assert refused.value.message == (
        f'Widget.{GROUP} "a" is invalid: [spec.mode: {unsupported}, <nil>: {unchecked}]'
    )
    assert refused.value.causes == (
        StatusCause(reason="FieldValueNotSupported", message=unsupported, field="spec.mode"),
        StatusCause(reason="FieldValueInvalid", message=unchecked, field="<nil>"),
    )


async def test_a_patch_is_validated_too(sandbox: Sandbox, kube: Kube, widgets: str) -> None:
    await kube.create(WIDGETS, widget("a"))
    with pytest.raises(Invalid) as refused:
        await patch(kube, WIDGETS, "a", {"spec": {"size": 11}})
    assert [cause.field for cause in refused.value.causes] == ["spec.size"]


async def test_a_rule_can_make_a_field_immutable(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    await kube.create(WIDGETS, widget("a"))

    with pytest.raises(Invalid) as refused:
        await patch(kube, WIDGETS, "a", {"spec": {"pool": "q"}})

    assert refused.value.causes == (
        StatusCause(
            reason="FieldValueInvalid",
            message="Invalid value: pool is immutable",
            field="spec",
        ),
    )
    now = await patch(kube, WIDGETS, "a", {"spec": {"size": 2}})
    assert now["spec"]["size"] == 2


# Tables and managed fields


async def test_a_table_has_the_columns_of_the_definition(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    await kube.create(WIDGETS, widget("a"))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"

    code, table = await sandbox.raw_response("GET", widgets, accept=accept)

    assert (code, table["kind"]) == (200, "Table")
    columns = [
        (item["name"], item["type"], item["priority"]) for item in table["columnDefinitions"]
    ]
    assert columns == [
        ("Name", "string", 0),
        ("Pool", "string", 0),
        ("Size", "integer", 1),
        ("Phase", "string", 0),
        ("Age", "date", 0),
    ]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["a", "p", 1, None]
    assert row["object"]["metadata"]["name"] == "a"


async def test_defaults_of_an_applied_object_have_no_owner(
    sandbox: Sandbox, kube: Kube, widgets: str
) -> None:
    wanted = {"metadata": {"name": "a"}, "spec": {"pool": "p", "steps": [{"name": "x"}]}}
    await kube.apply(WIDGETS, wanted, force=False)

    read = await get_json(kube, WIDGETS, "a")

    assert read["spec"]["size"] == 1
    (recorded,) = managed_fields(read)
    assert recorded["fieldsV1"] == {
        "f:spec": {
            "f:pool": {},
            "f:steps": {'k:{"name":"x"}': {".": {}, "f:name": {}}},
        }
    }
