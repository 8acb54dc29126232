"""Where the chart's pods prefer to run: root of a node has the keys of the pods on it."""

import json

from tests.component.chart.conftest import Render
from tests.component.chart.rendered import Object, pods


def affinities(objects: list[Object]) -> Object:
    found = [pod["spec"].get("affinity") for _, pod in pods(objects)]
    assert len(found) > 6
    assert all(each == found[0] for each in found)
    return found[0]


def test_services_and_nats_prefer_nodes_without_gpus(render: Render) -> None:
    preferred = affinities(render())["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    expressions = [each["preference"]["matchExpressions"] for each in preferred]
    assert expressions == [
        [{"key": key, "operator": "NotIn", "values": ["true"]}]
        for key in ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
    ]


def test_a_preference_of_the_administrator_comes_first(render: Render) -> None:
    own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    given = json.dumps({"nodeAffinity": own})
    assert affinities(render("--set-json", f"operator.affinity={given}")) == {"nodeAffinity": own}
    apart = json.dumps({"podAntiAffinity": {"x": []}})
    found = affinities(render("--set-json", f"operator.affinity={apart}"))
    assert set(found) == {"nodeAffinity", "podAntiAffinity"}
