"""Changed paths: one spelling for each change."""

from typing import Any

import pytest

from libs.kube.changes import changed_paths

READY = {"type": "Ready", "status": "True"}
PRESSURE = {"type": "MemoryPressure", "status": "False"}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 1}}, {}, id="nothing"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, {"a.b": (1, 2)}, id="a value"),
        pytest.param({"a": {}}, {"a": {"b": 1}}, {"a.b": (None, 1)}, id="into an empty one"),
        pytest.param({}, {"a": {}}, {"a": (None, {})}, id="an empty one is a leaf"),
        pytest.param({}, {"a": []}, {"a": (None, [])}, id="an empty list too"),
        pytest.param({"a": None}, {}, {}, id="null is absence"),
        pytest.param({}, {"a": {"b": {"c": 1}}}, {"a.b.c": (None, 1)}, id="a tree comes"),
        pytest.param(
            {"a": {"b": 1}}, {"a": 2}, {"a": ({"b": 1}, 2)}, id="a tree turns into a leaf"
        ),
        pytest.param({"a": {"b": 1}}, {"a": [1]}, {"a": ({"b": 1}, [1])}, id="and into a list"),
        pytest.param(
            {"a": {"x.y/z": "1", "": "2", 'q"': "3"}},
            {"a": {}},
            {'a["x.y/z"]': ("1", None), 'a[""]': ("2", None), 'a["q\\""]': ("3", None)},
            id="keys that look like paths",
        ),
        pytest.param(
            {"c": [PRESSURE, READY]},
            {"c": [READY | {"status": "False"}, PRESSURE]},
            {"c[type=Ready].status": ("True", "False")},
            id="conditions by type, in any order",
        ),
        pytest.param(
            {"t": [TAINT]},
            {"t": [TAINT, TAINT | {"effect": "NoExecute"}]},
            {
                "t[key=nvidia.com/gpu,effect=NoExecute].key": (None, "nvidia.com/gpu"),
                "t[key=nvidia.com/gpu,effect=NoExecute].effect": (None, "NoExecute"),
            },
            id="taints by key and effect",
        ),
        pytest.param(
            {"o": [{"uid": "u1", "name": "ds", "controller": True}]},
            {"o": [{"uid": "u1", "name": "ds"}]},
            {"o[uid=u1].controller": (True, None)},
            id="owners by uid",
        ),
        pytest.param(
            {"c": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
            {"c": [{"name": "a", "image": "2"}]},
            {
                "c[name=a].image": ("1", "2"),
                "c[name=b].name": ("b", None),
                "c[name=b].image": ("1", None),
            },
            id="containers by name, one gone",
        ),
        pytest.param(
            {"p": [{"ip": "10.0.0.1"}]},
            {"p": None},
            {"p[ip=10.0.0.1].ip": ("10.0.0.1", None)},
            id="addresses by ip",
        ),
        pytest.param(
            {"a": [{"type": "InternalIP", "address": "1"}]},
            {"a": [{"type": "InternalIP", "address": "1"}, {"type": "InternalIP", "address": "2"}]},
            {
                "a": (
                    [{"type": "InternalIP", "address": "1"}],
                    [
                        {"type": "InternalIP", "address": "1"},
                        {"type": "InternalIP", "address": "2"},
                    ],
                )
            },
            id="what does not tell them apart names nothing",
        ),
        pytest.param({"f": ["a"]}, {"f": ["a", "b"]}, {"f": (["a"], ["a", "b"])}, id="plain lists"),
        pytest.param(
            {"v": [{"name": "a,b]"}]},
            {"v": [{"name": "a,b]", "x": 1}]},
            {'v[name="a,b]"].x': (None, 1)},
            id="names that look like paths",
        ),
    ],
)
def test_changes(
    before: dict[str, Any], after: dict[str, Any], changed: dict[str, tuple[Any, Any]]
) -> None:
    assert changed_paths(before, after) == changed
    assert changed_paths(after, before) == {path: (b, a) for path, (a, b) in changed.items()}


def test_server_bookkeeping_is_not_a_change() -> None:
    before = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "1", "generation": 1}}
    after = {
        "apiVersion": "v1",
        "metadata": {
            "name": "n",
            "resourceVersion": "2",
            "generation": 2,
            "managedFields": [{"manager": "us"}],
        },
        "spec": {"template": {"metadata": {"generation": 3}}},
    }
    assert changed_paths(before, after) == {"spec.template.metadata.generation": (None, 3)}


def test_creation_and_deletion_change_every_leaf() -> None:
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    assert changed_paths(None, node) == {
        "metadata.name": (None, "n"),
        "spec.unschedulable": (None, True),
    }
    assert changed_paths(node, None) == {
        "metadata.name": ("n", None),
        "spec.unschedulable": (True, None),
    }
    assert changed_paths(None, None) == {}
