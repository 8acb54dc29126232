"""Server-side applies that a server refuses."""

import pytest

from libs.kube.client import APPLY_PATCH
from libs.kube.errors import Invalid, Unavailable
from libs.kube.resources import CONFIG_MAPS
from tests.builders.objects import config_map
from tests.component.kube.sandbox import Kube, Sandbox


async def test_an_apply_may_not_set_managed_fields(sandbox: Sandbox, kube: Kube) -> None:
    wanted = config_map("a", managedFields=[{"manager": "x", "operation": "Apply"}])
    with pytest.raises(Invalid) as refused:
        await kube.apply(CONFIG_MAPS, wanted, force=False)
    assert refused.value.message == "metadata.managedFields must be nil"


async def test_an_apply_requires_a_field_manager(sandbox: Sandbox, kube: Kube) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(Invalid) as refused:
        await kube.request(
            "PATCH",
            CONFIG_MAPS.path(namespace=sandbox.namespace, name="a"),
            body=body,
            content_type=APPLY_PATCH,
        )
    assert refused.value.code == 422
    assert [cause.field for cause in refused.value.causes] == ["fieldManager"]


async def test_an_apply_must_match_the_object_of_its_path(sandbox: Sandbox, kube: Kube) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}
    with pytest.raises(Invalid) as refused:
        await kube.request(
            "PATCH",
            CONFIG_MAPS.path(namespace=sandbox.namespace, name="a"),
            query={"fieldManager": "m"},
            body=body,
            content_type=APPLY_PATCH,
        )
    assert refused.value.message == (
        "the name of the object (b) does not match the name on the URL (a)"
    )


async def test_force_is_refused_for_other_patches(sandbox: Sandbox, kube: Kube) -> None:
    await kube.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(Invalid) as refused:
        await kube.request(
            "PATCH",
            CONFIG_MAPS.path(namespace=sandbox.namespace, name="a"),
            query={"force": "true"},
            body={},
            content_type="application/merge-patch+json",
        )
    assert [cause.field for cause in refused.value.causes] == ["force"]


async def test_an_apply_of_an_unknown_field_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    wanted = {"metadata": {"name": "a"}, "nonsense": {"k": "1"}}
    with pytest.raises(Unavailable) as refused:
        await kube.apply(CONFIG_MAPS, wanted, force=False)
    assert refused.value.code == 500
    assert refused.value.message.endswith(".nonsense: field not declared in schema")
