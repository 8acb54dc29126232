"""An applied object does not differ from the rendered one, whatever the server adds or rewrites."""

from typing import Any

import msgspec
import pytest

from libs.kube.client import APPLY_PATCH
from libs.kube.requests import Transport
from libs.kube.views import Object
from libs.policy.installation import installation_objects
from services.driver.cluster import resources
from services.driver.cluster.diff import difference
from tests.component.definitions import install_monitors
from tests.component.kube.sandbox import ADMIN, ServerUnderTest
from tests.component.policy.strict_writes import apply, object_path, send
from tests.unit.policy import goldens
from tests.unit.policy.situations import SETTINGS, SITUATIONS, Situation
from tests.unit.policy.test_effects import changed_policies, render

RBAC = "rbac.authorization.k8s.io/v1"
QUANTITIES = {
    "limits": {"cpu": 2, "memory": "2e9"},
    "requests": {"cpu": "0.5", "memory": 1073741824},
}


@pytest.fixture
async def wire(server: ServerUnderTest) -> Transport:
    """An admin connection to a server that has the namespace of the operands."""
    wire = server.wire(ADMIN)
    for obj in installation_objects(SETTINGS.namespace):
        if obj["apiVersion"] != RBAC:
            await apply(wire, obj)
    await install_monitors(wire)
    return wire


async def stored_form(wire: Transport, obj: dict[str, Any]) -> Object:
    """Return the object as the server would store it."""
    path = object_path(obj)
    status, _, answer = await send(
        wire, "PATCH", path, obj, content=APPLY_PATCH, force="true", dryRun="All"
    )
    assert status in (200, 201), answer
    view = resources.OPERANDS[obj["kind"]].view
    return msgspec.json.decode(msgspec.json.encode(answer), type=view)


@pytest.mark.parametrize("name", SITUATIONS)
async def test_an_applied_object_has_no_difference(wire: Transport, name: str) -> None:
    for obj in goldens.golden_objects(name):
        stored = await stored_form(wire, obj)
        assert resources.is_ours(stored)
        assert difference(obj, stored) == "", obj["metadata"]["name"]


@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_no_policy_field_is_stored_in_another_form(wire: Transport) -> None:
    differences: dict[bytes, str] = {}
    changed = list(changed_policies())
    for field, objects in changed:
        for created in render(objects).objects:
            text = msgspec.json.encode(created.object)
            if text not in differences:
                differences[text] = difference(
                    created.object, await stored_form(wire, created.object)
                )
                assert differences[text] == "", (field, created.name)
    assert len(differences) > len(changed)


@pytest.mark.parametrize("ground", ["real"], indirect=True)
async def test_equal_quantities_in_different_notations_are_no_difference(wire: Transport) -> None:
    toolkit = {"resources": QUANTITIES}
    objects = [{**each} for each in SITUATIONS["one-driver-for-all"].objects]
    objects[0]["spec"] = {**objects[0]["spec"], "toolkit": toolkit}
    for created in Situation(objects).rendering().objects:
        assert difference(created.object, await stored_form(wire, created.object)) == "", (
            created.name
        )
