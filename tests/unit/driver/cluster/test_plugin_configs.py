"""The condition that names configurations of the device plugin which cannot be used."""

from collections.abc import Mapping
from typing import Any

import pytest

from libs.contracts.node import PLUGIN_CONFIG_LABEL
from libs.policy.plugin_config.texts import MAX_TEXT
from libs.policy.validation import PRESENT_LABEL
from services.driver.cluster import resources
from services.driver.cluster.plan import OF_CLUSTER
from services.driver.cluster.plugin_configs import PLUGIN_CONFIG
from tests.builders import objects
from tests.builders.objects import seen
from tests.unit.driver.cluster.builders import POLICY_KEY, node, plan
from tests.unit.policy.situations import SETTINGS, cluster_policy

SLICED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
MPS = SLICED.replace("timeSlicing", "mps")
WHERE = f"ConfigMap {SETTINGS.namespace}/plugins"


def message(
    files: Mapping[str, str] | None,
    *nodes: resources.Node,
    default: str = "",
    **section: Any,
) -> str:
    """Return the condition's message; empty if there is none."""
    config = {"name": "plugins", "default": default}
    policy = cluster_policy(devicePlugin={"config": config, **section})
    config_maps = {} if files is None else {"plugins": files}
    operands = plan(policy, nodes=nodes, config_maps=config_maps)
    conditions = operands.statuses[POLICY_KEY].conditions
    found = [each for each in conditions if each.type == PLUGIN_CONFIG]
    assert all(each.status and each.reason == "NotUsable" for each in found)
    return "".join(each.message for each in found)


def labelled(name: str, value: str, **labels: str) -> resources.Node:
    return node(name, **{PLUGIN_CONFIG_LABEL: value, **labels})


def test_configurations_that_can_be_used_need_no_condition() -> None:
    files = {"sliced": SLICED, "plain": ""}
    assert message(files, labelled("a", "sliced"), node("b"), default="plain") == ""
    assert message(files, labelled("a", "")) == ""
    assert message(None, labelled("a", "gone"), enabled=False) == ""
    assert message({"other": MPS}, config={}) == ""
    assert PLUGIN_CONFIG in OF_CLUSTER


def test_sharing_by_mps_names_the_file_and_what_to_do() -> None:
    found = message({"sliced": SLICED, "by-mps": MPS}, default="sliced")
    assert found.startswith(f"key by-mps of {WHERE}: sharing.mps is set, and Sluice does not")
    assert "use sharing.timeSlicing, or run another device plugin" in found
    assert "offers no GPUs if it had none" in found
    assert "key sliced" not in found


@pytest.mark.parametrize(
    ("files", "default", "problem"),
    [
        (None, "", f"{WHERE} does not exist, which spec.devicePlugin.config.name names"),
        ({"a": ""}, "b", f"{WHERE} has no key b, which spec.devicePlugin.config.default names"),
        ({"a": "version: v2"}, "a", f"key a of {WHERE}: version 'v2' is not known: write v1"),
        ({"a": "x: ["}, "a", f"key a of {WHERE}: the file, line 2: it is no YAML"),
    ],
)
def test_each_problem_says_where_it_is(
    files: dict[str, str] | None, default: str, problem: str
) -> None:
    assert message(files, default=default).startswith(problem)


def test_a_label_without_a_key_names_its_nodes() -> None:
    names = [f"n{number}" for number in range(7)]
    nodes = [labelled(name, "gone") for name in names]
    nodes += [labelled("b", "sliced"), labelled("c", "gone", **{PRESENT_LABEL: "false"})]
    assert message({"sliced": SLICED}, *nodes).startswith(
        f"{WHERE} has no key gone, which the label {PLUGIN_CONFIG_LABEL} of n0, n1, n2, n3, n4"
        " and 2 more names: add it, or name another; "
    )


def test_short_texts_of_foreign_config_maps_are_kept() -> None:
    data = {"short": MPS, "long": "x" * (MAX_TEXT + 1)}
    config_map = seen(resources.ConfigMap, objects.config_map("a", data))
    assert config_map.data == {"short": MPS, "long": ""}
    assert config_map.keys == ("short", "long")
