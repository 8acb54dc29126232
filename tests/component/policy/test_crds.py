"""An API server with Sluice's CRDs accepts, defaults and refuses objects as expected."""

import copy
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from libs.kube.requests import Transport
from libs.policy.crds import crd_manifests, crd_schema
from libs.policy.kinds import KINDS
from tests.component.kube.raw_requests import JSON_PATCH
from tests.component.policy.strict_writes import apply, create, is_served, object_path, send
from tests.support import eventually
from tests.unit.policy.crd_schemas import admit, corpus
from tests.unit.policy.fields import cases, minimal_object, put

Object = dict[str, Any]

DEFAULT = "default NVIDIADriver must not use nodeSelector"


@dataclass(frozen=True)
class ImmutableField:
    """A field that cannot change after creation."""

    kind: str
    field: str
    before: Any
    after: Any
    words: str

    def manifest(self, name: str, value: Any) -> Object:
        obj = minimal_object(self.kind)
        obj["metadata"]["name"] = name
        obj["spec"][self.field] = value
        return obj


FIXED = [
    ImmutableField("NVIDIADriver", "driverType", "gpu", "vgpu", "driverType is an immutable field"),
    ImmutableField(
        "NVIDIADriver", "usePrecompiled", False, True, "usePrecompiled is an immutable field"
    ),
    ImmutableField(
        "RolloutStrategy",
        "pool",
        "clusterpolicy-a",
        "clusterpolicy-b",
        "pool cannot be changed: make another strategy",
    ),
]


@pytest.fixture
async def policies(wire: Transport) -> AsyncIterator[Transport]:
    """A server that serves all kinds. Definitions stay between tests; objects are deleted."""
    for definition in crd_manifests().values():
        await apply(wire, definition)
    places = [object_path(minimal_object(kind), named=False) for kind in KINDS]

    async def served() -> bool:
        return all([await is_served(wire, place) for place in places])

    await eventually(served)
    yield wire
    for place in places:
        assert (await send(wire, "DELETE", place))[0] == 200


def without_server_fields(obj: Object) -> Object:
    """Return an object without the fields that the server sets."""
    return {name: value for name, value in obj.items() if name != "metadata"}


def causes(answer: Object) -> list[tuple[str, str]]:
    """Return field and message of each cause of a refusal."""
    return [(cause["field"], cause["message"]) for cause in answer["details"]["causes"]]


def with_unknown() -> Object:
    """Return a policy with a field that is not in the schema."""
    obj = minimal_object("ClusterPolicy")
    put(obj["spec"], "driver.virtualization.mode", "x")
    return obj


async def test_every_definition_is_established(policies: Transport) -> None:
    for definition in crd_manifests().values():
        _, _, now = await send(policies, "GET", object_path(definition))
        conditions = {each["type"]: each["status"] for each in now["status"]["conditions"]}
        # A schema that is not structural has a condition of its own.
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert now["status"]["acceptedNames"] == definition["spec"]["names"]


async def test_the_corpus_is_accepted_and_defaulted(policies: Transport) -> None:
    for name, obj in corpus():
        created = await create(policies, obj)
        assert without_server_fields(created) == without_server_fields(admit(obj)), name
        assert (await send(policies, "GET", object_path(obj)))[2] == created
        assert (await send(policies, "DELETE", object_path(obj)))[0] == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_every_field_is_accepted(policies: Transport, kind: str) -> None:
    for case in cases():
        if case.kind == kind:
            obj = case.manifest()
            created = await create(policies, obj, dryRun="All")
            assert without_server_fields(created) == without_server_fields(admit(obj)), case


async def test_unknown_fields_are_pruned(policies: Transport) -> None:
    created = await create(policies, with_unknown(), fieldValidation="Ignore")
    assert without_server_fields(created) == without_server_fields(
        admit(minimal_object("ClusterPolicy"))
    )


@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_unknown_fields_cause_a_warning(policies: Transport) -> None:
    obj = with_unknown()
    place = object_path(obj, named=False)
    unknown = 'unknown field "spec.driver.virtualization"'
    status, warnings, _ = await send(policies, "POST", place, obj, fieldValidation="Warn")
    assert (status, warnings) == (201, [f"299 - {json.dumps(unknown)}"])
    status, _, answer = await send(policies, "POST", place, obj)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert answer["message"].endswith(f"strict decoding error: {unknown}")


async def test_a_version_is_patched_as_the_documentation_says(policies: Transport) -> None:
    obj = next(obj for name, obj in corpus() if name.startswith("cluster-policy-rendered/"))
    created = await create(policies, obj)
    change = [{"op": "replace", "path": "/spec/driver/version", "value": "590.44.01"}]
    status, warnings, now = await send(
        policies, "PATCH", object_path(obj), change, content=JSON_PATCH
    )
    assert (status, warnings) == (200, [])
    created["spec"]["driver"]["version"] = "590.44.01"
    assert without_server_fields(now) == without_server_fields(created)
    assert now["metadata"]["generation"] == created["metadata"]["generation"] + 1


# Rules.


def test_every_cel_rule_is_tested() -> None:
    found = [message for kind in KINDS.values() for message in messages(crd_schema(kind))]
    assert sorted(found) == sorted([DEFAULT, *(fixed.words for fixed in FIXED)])


def messages(part: Any) -> Iterator[str]:
    """Yield the messages of the rules in a part of a schema."""
    if isinstance(part, dict):
        known = cast(Object, part)
        yield from (rule["message"] for rule in known.get("x-kubernetes-validations", []))
        for below in known.values():
            yield from messages(below)


async def test_a_default_driver_with_a_selector_is_refused(policies: Transport) -> None:
    obj = minimal_object("NVIDIADriver")
    obj["spec"] |= {"default": True, "nodeSelector": {"a": "b"}}
    status, _, answer = await send(policies, "POST", object_path(obj, named=False), obj)
    assert (status, answer["reason"]) == (422, "Invalid")
    assert causes(answer) == [("spec", f"Invalid value: {DEFAULT}")]

    for allowed in ({"nodeSelector": {}}, {"default": False}):
        await create(policies, obj | {"spec": obj["spec"] | allowed}, dryRun="All")


@pytest.mark.parametrize("fixed", FIXED, ids=lambda fixed: f"{fixed.kind} {fixed.field}")
async def test_immutable_fields(policies: Transport, fixed: ImmutableField) -> None:
    created = await create(policies, fixed.manifest("a", fixed.before))
    other = copy.deepcopy(created)
    other["spec"][fixed.field] = fixed.after
    status, _, answer = await send(policies, "PUT", object_path(other), other)
    assert (status, answer["reason"]) == (422, "Invalid")
    why = f"Invalid value: {json.dumps(fixed.after)}: {fixed.words}"
    assert causes(answer) == [(f"spec.{fixed.field}", why)]

    assert (await send(policies, "PUT", object_path(created), created))[0] == 200
    await create(policies, fixed.manifest("b", fixed.after))
