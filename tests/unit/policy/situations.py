"""Situations that are rendered: what people wrote, and the nodes that there are."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from libs.policy.kinds.common import EnvVar
from libs.policy.manifests import parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pools import Pools, assemble_pools
from libs.policy.render.operands import render_operands
from libs.policy.render.rendered import RenderResult
from libs.policy.render.settings import AgentImages, RenderSettings
from libs.policy.variants import NodeVariants, assign_variants

CORPUS = Path(__file__).parent / "corpus"
FEATURES = "feature.node.kubernetes.io/"
SETTINGS = RenderSettings(
    namespace="gpu-operator",
    images=AgentImages(
        discovery="r.example/sluice/discovery:1.0",
        driver="r.example/sluice/driver:1.0",
        validator="r.example/sluice/validator:1.0",
        telemetry="r.example/sluice/telemetry:1.0",
    ),
    env=(EnvVar(name="SLUICE_NATS_URL", value="tls://nats.gpu-operator.svc:4222"),),
)
FILES: Mapping[str, Sequence[str]] = {
    "apt-sources": ["ubuntu.list"],
    "registry-ca": ["ca.crt", "intermediate.crt"],
    "kernel-module-params": ["nvidia.conf"],
}
Object = dict[str, Any]


def node(
    name: str,
    *,
    system: str = "ubuntu",
    version: str = "22.04",
    kernel: str = "5.15.0-139-generic",
    **labels: str,
) -> NodeLabels:
    """A GPU node as discovery labels it."""
    told = {
        "nvidia.com/gpu.present": "true",
        "kubernetes.io/arch": "amd64",
        f"{FEATURES}system-os_release.ID": system,
        f"{FEATURES}system-os_release.VERSION_ID": version,
        f"{FEATURES}system-os_release.VERSION_ID.major": version.partition(".")[0],
        f"{FEATURES}kernel-version.full": kernel,
    }
    return NodeLabels(name=name, uid=f"uid-{name}", labels={**told, **labels})


UBUNTU = node("a")
RED_HAT = node("b", system="rhel", version="9.4", kernel="5.14.0-427.el9.x86_64")
DRIVER = {"repository": "r.example/nvidia", "image": "driver", "version": "580.95.05"}


@dataclass(frozen=True)
class Situation:
    """What is there."""

    objects: Sequence[Object]
    nodes: Sequence[NodeLabels] = (UBUNTU,)
    config_maps: Mapping[str, Sequence[str]] = field(default_factory=lambda: FILES)

    def pools(self) -> Pools:
        """Who has which nodes."""
        return assemble_pools(
            [parse_manifest(obj["kind"], obj) for obj in self.objects], self.nodes
        )

    def placement(self) -> NodeVariants:
        """Of which variants those are."""
        return assign_variants(self.pools(), self.nodes)

    def rendering(self, settings: RenderSettings = SETTINGS) -> RenderResult:
        """All that is wanted."""
        return render_operands(
            self.pools(), self.placement(), settings, config_maps=self.config_maps
        )


def cluster_policy(**spec: Any) -> Object:
    """With a driver, and nothing else said."""
    sections = {"driver": DRIVER, **spec}
    needed = "operator daemonsets toolkit devicePlugin dcgm dcgmExporter nodeStatusExporter gfd"
    metadata = {"name": "cluster-policy", "uid": "4d4b2a3f-8f0d-4c5e-9d1a-0c2f6f0f7b11"}
    policy = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": metadata,
        "spec": {**{section: {} for section in needed.split()}, **sections},
    }
    return deepcopy(policy)


def crd_mode_policy(**spec: Any) -> Object:
    """A policy for the whole cluster that leaves drivers to NVIDIADrivers."""
    return cluster_policy(driver={"useNvidiaDriverCRD": True}, **spec)


def nvidia_driver(name: str, **spec: Any) -> Object:
    """A driver for nodes of its own."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"default": False, "driverType": "gpu", **DRIVER, **spec},
    }


def from_corpus(name: str) -> list[Object]:
    """Manifests as people write them, as if they had been applied."""
    objects = [obj for obj in yaml.safe_load_all((CORPUS / name).read_text()) if obj]
    for obj in objects:
        obj["metadata"]["uid"] = f"uid-of-{obj['metadata']['name']}"
    return objects


def drivers(rendering: RenderResult) -> list[Object]:
    """The DaemonSets of drivers."""
    return [made.object for made in rendering.objects if made.driver]


def without_digests(daemon_set: Object) -> Object:
    """The pod of a driver but for its digests, which change with every field of a wish."""
    template = deepcopy(daemon_set["spec"]["template"])
    pod, metadata = template["spec"], template["metadata"]
    for container in (*pod["initContainers"], *pod["containers"]):
        variables = container.get("env", [])
        container["env"] = [one for one in variables if one["name"] != "DRIVER_CONFIG_DIGEST"]
    for words in (metadata["labels"], metadata["annotations"]):
        for name in ("sluice.dev/driver", "sluice.dev/target", "sluice.dev/install-digest"):
            words.pop(name, None)
    del pod["nodeSelector"]
    return template


def pod_of(rendering: RenderResult, app: str) -> Object:
    """What the pods of a DaemonSet are, by the label that people select by."""
    (found,) = [
        made.object["spec"]["template"]["spec"]
        for made in rendering.objects
        if made.kind == "DaemonSet" and made.object["metadata"]["labels"]["app"] == app
    ]
    return found


def env_of(container: Object) -> dict[str, Any]:
    """Its variables; None where the value comes from elsewhere."""
    return {one["name"]: one.get("value") for one in container["env"]}


def rendered_names(rendering: RenderResult) -> list[tuple[str, str]]:
    """Kind and name of all that is rendered."""
    return [(made.kind, made.name) for made in rendering.objects]


SITUATIONS: dict[str, Situation] = {
    "one-driver-for-all": Situation(
        [cluster_policy()], [UBUNTU, node("c", version="24.04"), node("d")]
    ),
    "private-registry-and-all-parts": Situation(
        from_corpus("cluster-policy-private-registry.yaml"), [RED_HAT]
    ),
    "precompiled": Situation(
        [cluster_policy(driver={**DRIVER, "version": "580", "usePrecompiled": True})],
        [UBUNTU, node("c", kernel="5.15.0-151-generic")],
    ),
    "two-drivers": Situation(
        [
            crd_mode_policy(),
            nvidia_driver("canary", nodeSelector={"pool": "canary"}, version="590.10"),
            nvidia_driver("rest", default=True, kernelModuleType="open", labels={"team": "ml"}),
        ],
        [UBUNTU, node("c", pool="canary")],
    ),
    "driver-on-the-host": Situation(from_corpus("gpu-cluster-policy.yaml")),
    "pre-installed-and-switched-off": Situation(
        [
            cluster_policy(
                driver={"enabled": False},
                toolkit={"enabled": False},
                devicePlugin={"enabled": False},
                dcgmExporter={"enabled": False},
                migManager={"enabled": False},
                cdi={"enabled": False},
            )
        ]
    ),
}
"""By the name of the golden file."""
