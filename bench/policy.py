"""Selecting and rendering 20 pools of 5,000 nodes, compared with decoding the nodes."""

import time
from collections.abc import Sequence
from typing import Any

from bench.recorded import NODES as COUNT
from bench.recorded import pages
from bench.report import BenchReport, ratio
from libs.kube.reads import decode_page
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pools import assemble_pools
from libs.policy.render.operands import render_operands
from libs.policy.render.rendered import AgentImages, RenderSettings
from libs.policy.variants import assign_variants

TITLE = "5,000 nodes in 20 pools: selection and rendering, beside decoding the nodes"
POOLS = 20
ROUNDS = 5
BUDGET = 0.5

_SYSTEMS = (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rhel", "9.4"))
_FEATURES = "feature.node.kubernetes.io/"


async def run(report: BenchReport) -> None:
    """Measure both in turns, on nodes with realistic labels."""
    bodies = pages()
    policies = _policies()
    decoding: list[float] = []
    rendering: list[float] = []
    rendered = 0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        nodes = [node for body in bodies for node in decode_page(body, NODES, path="/").items]
        decoding.append(time.perf_counter() - started)
        labels = [_labels(number, node) for number, node in enumerate(nodes)]
        started = time.perf_counter()
        rendered = _render(policies, nodes, labels)
        rendering.append(time.perf_counter() - started)
    report.figure("nodes decoded", min(decoding) * 1000, "ms", note=f"{COUNT} of them")
    report.figure("selected and rendered", min(rendering) * 1000, "ms", note=f"{rendered} objects")
    report.at_most("of the time of decoding", ratio(rendering, decoding), BUDGET, "x")


def _render(policies: Sequence[ParsedPolicy], nodes: Sequence[Node], labels: Sequence[Any]) -> int:
    facts = [
        NodeLabels(name=node.metadata.name, uid=node.metadata.uid, labels=node_labels)
        for node, node_labels in zip(nodes, labels, strict=True)
    ]
    wanted = assemble_pools(policies, facts)
    return len(
        render_operands(wanted, assign_variants(wanted, facts), _SETTINGS, config_maps={}).objects
    )


def _labels(number: int, node: Node) -> dict[str, str]:
    system, version = _SYSTEMS[number % len(_SYSTEMS)]
    return {
        **node.metadata.labels,
        "nvidia.com/gpu.present": "true",
        "pool": str(number % POOLS),
        f"{_FEATURES}system-os_release.ID": system,
        f"{_FEATURES}system-os_release.VERSION_ID": version,
        f"{_FEATURES}system-os_release.VERSION_ID.major": version.partition(".")[0],
    }


def _policies() -> list[ParsedPolicy]:
    cluster_policy = {"metadata": {"name": "a"}, "spec": {"driver": {"useNvidiaDriverCRD": True}}}
    parsed = [parse_manifest("ClusterPolicy", cluster_policy)]
    for number in range(POOLS):
        spec = {
            "default": False,
            "driverType": "gpu",
            "repository": "r.example/nvidia",
            "image": "driver",
            "version": f"580.{number}",
            "nodeSelector": {"pool": str(number)},
            "rdma": {"enabled": True},
        }
        metadata = {"name": f"pool-{number}", "uid": f"uid-{number}"}
        parsed.append(parse_manifest("NVIDIADriver", {"metadata": metadata, "spec": spec}))
    return parsed


_SETTINGS = RenderSettings(
    namespace="gpu-operator",
    images=AgentImages(
        discovery="r.example/discovery:1",
        driver="r.example/driver:1",
        validator="r.example/validator:1",
        telemetry="r.example/telemetry:1",
    ),
)
