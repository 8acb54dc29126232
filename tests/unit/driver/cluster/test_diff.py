"""When an apply would change something, and when it would not."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

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


def live() -> dict[str, Any]:
    return deepcopy(WANTED)


def test_what_is_as_it_was_sent_differs_in_nothing() -> None:
    assert difference(WANTED, live_object(WANTED)) == ""


def test_what_a_server_adds_leaves_out_and_writes_otherwise_is_no_difference() -> None:
    there = live()
    there["metadata"]["labels"]["team"] = "ml"
    there["spec"]["revisionHistoryLimit"] = 10
    del there["spec"]["template"]["spec"]["hostNetwork"]
    container(there)["env"][1].pop("value")
    container(there)["env"].insert(1, {"name": "BETWEEN", "value": "x"})
    container(there)["terminationMessagePolicy"] = "File"
    container(there)["resources"]["limits"] = {"cpu": "500m", "memory": "1073741824"}
    view = live_object(WANTED)
    other = live_object(there)
    assert difference(WANTED, _with(other, like=view)) == ""


def _with(view: Any, *, like: Any) -> Any:
    """The same object, of which we own what we own of the other."""
    metadata = msgspec.structs.replace(view.metadata, managed_fields=like.metadata.managed_fields)
    return msgspec.structs.replace(view, metadata=metadata)


EDITS: list[tuple[Edit, str]] = [
    (lambda obj: obj["metadata"]["labels"].pop("app"), "metadata.labels.app"),
    (lambda obj: obj["metadata"].pop("annotations"), "metadata.annotations.x"),
    (
        lambda obj: obj["spec"].update(updateStrategy={"type": "RollingUpdate"}),
        "spec.updateStrategy.type",
    ),
    (lambda obj: obj["spec"].pop("template"), "spec.template.spec.tolerations"),
    (lambda obj: container(obj).update(args=["one"]), "spec.template.spec.containers[name=c].args"),
    (
        lambda obj: container(obj).update(args=["one", "three"]),
        "spec.template.spec.containers[name=c].args[1]",
    ),
    (lambda obj: container(obj)["env"].reverse(), "spec.template.spec.containers[name=c].env"),
    (
        lambda obj: container(obj)["env"][0].update(value="2"),
        "spec.template.spec.containers[name=c].env[name=A].value",
    ),
    (
        lambda obj: container(obj)["resources"]["limits"].update(cpu="501m"),
        "spec.template.spec.containers[name=c].resources.limits.cpu",
    ),
    (
        lambda obj: container(obj)["volumeMounts"].pop(0),
        "spec.template.spec.containers[name=c].volumeMounts",
    ),
]


@pytest.mark.parametrize(("edit", "path"), EDITS)
def test_what_is_missing_or_other_is_named(edit: Edit, path: str) -> None:
    there = live()
    edit(there)
    assert difference(WANTED, _with(live_object(there), like=live_object(WANTED))) == path


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


@pytest.mark.parametrize(("more", "path"), ADDED)
def test_what_we_applied_once_and_want_no_more_is_named(more: Edit, path: str) -> None:
    there = live()
    more(there)
    assert difference(WANTED, live_object(there)) == path


def test_fields_of_other_managers_are_no_difference() -> None:
    there = live()
    there["spec"]["minReadySeconds"] = 5
    assert difference(WANTED, _with(live_object(there), like=live_object(WANTED))) == ""


def test_a_file_that_differs_is_named() -> None:
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/managed-by": "sluice"}},
        "data": {"a.sh": "1"},
    }
    assert difference(wanted, live_object(wanted)) == ""
    assert difference({**wanted, "data": {"a.sh": "2"}}, live_object(wanted)) == "data.a.sh"
    assert difference({**wanted, "data": {}}, live_object(wanted)) == "data.a.sh"
