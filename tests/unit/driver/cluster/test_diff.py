"""Whether an apply would change a live object."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from services.driver.cluster.diff import difference
from tests.unit.driver.cluster.builders import live_object

Edit = Callable[[dict[str, Any]], object]

WANTED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "a", "labels": {"app": "a"}, "annotations": {"x": "1"}},
    "spec": {
        "updateStrategy": {"type": "OnDelete"},
        "template": {
            "spec": {
                "hostNetwork": False,
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "containers": [
                    {
                        "name": "c",
                        "args": ["one", "two"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                        "resources": {"limits": {"cpu": "0.5", "memory": "1Gi"}},
                        "volumeMounts": [
                            {"name": "v", "mountPath": "/a"},
                            {"name": "v", "mountPath": "/b"},
                        ],
                    }
                ],
            }
        },
    },
}


def container(obj: dict[str, Any]) -> dict[str, Any]:
    return obj["spec"]["template"]["spec"]["containers"][0]


def edited(edit: Edit) -> dict[str, Any]:
    obj = deepcopy(WANTED)
    edit(obj)
    return obj


def live(obj: dict[str, Any]) -> Any:
    """Return a live object of which Sluice owns the fields of `WANTED` only."""
    view, fields = live_object(obj), live_object(WANTED).metadata.managed_fields
    metadata = replace(view.metadata, managed_fields=fields)
    return replace(view, metadata=metadata)


def test_values_that_a_server_adds_drops_or_rewrites_are_no_difference() -> None:
    stored = deepcopy(WANTED)
    stored["metadata"]["labels"]["team"] = "ml"
    stored["spec"] |= {"revisionHistoryLimit": 10, "minReadySeconds": 5}
    del stored["spec"]["template"]["spec"]["hostNetwork"]
    container(stored)["env"][1].pop("value")
    container(stored)["env"].insert(1, {"name": "BETWEEN", "value": "x"})
    container(stored)["terminationMessagePolicy"] = "File"
    container(stored)["resources"]["limits"] = {"cpu": "500m", "memory": "1073741824"}
    assert difference(WANTED, live(stored)) == difference(WANTED, live(WANTED)) == ""


CONTAINER = "spec.template.spec.containers[name=c]"
EDITS: list[tuple[Edit, str]] = [
    (lambda obj: obj["metadata"]["labels"].pop("app"), "metadata.labels.app"),
    (lambda obj: obj["metadata"].pop("annotations"), "metadata.annotations.x"),
    (
        lambda obj: obj["spec"].update(updateStrategy={"type": "RollingUpdate"}),
        "spec.updateStrategy.type",
    ),
    (lambda obj: obj["spec"].pop("template"), "spec.template.spec.tolerations"),
    (lambda obj: container(obj).update(args=["one"]), f"{CONTAINER}.args"),
    (
        lambda obj: container(obj).update(args=["one", "three"]),
        f"{CONTAINER}.args[1]",
    ),
    (lambda obj: container(obj)["env"].reverse(), f"{CONTAINER}.env"),
    (
        lambda obj: container(obj)["env"][0].update(value="2"),
        f"{CONTAINER}.env[name=A].value",
    ),
    (
        lambda obj: container(obj)["resources"]["limits"].update(cpu="501m"),
        f"{CONTAINER}.resources.limits.cpu",
    ),
    (
        lambda obj: container(obj)["volumeMounts"].pop(0),
        f"{CONTAINER}.volumeMounts",
    ),
]


@pytest.mark.parametrize(("edit", "path"), EDITS)
def test_a_missing_or_different_value_is_a_difference(edit: Edit, path: str) -> None:
    assert difference(WANTED, live(edited(edit))) == path


ADDED: list[tuple[Edit, str]] = [
    (lambda obj: obj["metadata"]["labels"].update(old="1"), "metadata.labels.old"),
    (lambda obj: obj["spec"].update(minReadySeconds=5), "spec.minReadySeconds"),
    (
        lambda obj: container(obj)["env"].append({"name": "OLD", "value": "1"}),
        'spec.template.spec.containers[{"name":"c"}].env[{"name":"OLD"}]',
    ),
    (
        lambda obj: obj["spec"]["template"]["spec"]["containers"].append({"name": "d"}),
        'spec.template.spec.containers[{"name":"d"}]',
    ),
]


@pytest.mark.parametrize(("edit", "path"), ADDED)
def test_a_field_that_sluice_owns_and_no_longer_wants_is_a_difference(
    edit: Edit, path: str
) -> None:
    assert difference(WANTED, live_object(edited(edit))) == path


def test_the_data_of_config_maps_is_compared() -> None:
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/managed-by": "sluice"}},
        "data": {"a.sh": "1"},
    }
    assert difference(wanted, live_object(wanted)) == ""
    for data in ({"a.sh": "2"}, {}):
        assert difference({**wanted, "data": data}, live_object(wanted)) == "data.a.sh"
