"""Situations to render: policies and nodes."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from libs.policy.kinds.common import EnvVar
from libs.policy.manifests import parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pool import Pools
from libs.policy.pools import assemble_pools
from libs.policy.render.operands import render_operands
from libs.policy.render.rendered import AgentImages, RenderResult, RenderSettings
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
    bus_ca="sluice-nats-ca",
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
    """Return a GPU node with the labels that discovery writes."""
    discovered = {
        "nvidia.com/gpu.present": "true",
        "kubernetes.io/arch": "amd64",
        f"{FEATURES}system-os_release.ID": system,
        f"{FEATURES}system-os_release.VERSION_ID": version,
        f"{FEATURES}system-os_release.VERSION_ID.major": version.partition(".")[0],
        f"{FEATURES}kernel-version.full": kernel,
    }
    return NodeLabels(name=name, uid=f"uid-{name}", labels={**discovered, **labels})


UBUNTU = node("a")
RED_HAT = node("b", system="rhel", version="9.4", kernel="5.14.0-427.el9.x86_64")
DRIVER = {"repository": "r.example/nvidia", "image": "driver", "version": "580.95.05"}


@dataclass(frozen=True)
class Situation:
    objects: Sequence[Object]
    nodes: Sequence[NodeLabels] = (UBUNTU,)
    config_maps: Mapping[str, Sequence[str]] = field(default_factory=lambda: FILES)
    claims_end: bool = False

    def pools(self) -> Pools:
        return assemble_pools(
            [parse_manifest(obj["kind"], obj) for obj in self.objects], self.nodes
        )

    def placement(self) -> NodeVariants:
        return assign_variants(self.pools(), self.nodes)

    def rendering(self, settings: RenderSettings = SETTINGS) -> RenderResult:
        return render_operands(
            self.pools(),
            self.placement(),
            settings,
            config_maps=self.config_maps,
            claims_end=self.claims_end,
        )


def cluster_policy(**spec: Any) -> Object:
    """Return a ClusterPolicy that sets only the driver."""
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
    """Return a ClusterPolicy that leaves drivers to NVIDIADrivers."""
    return cluster_policy(driver={"useNvidiaDriverCRD": True}, **spec)


def nvidia_driver(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"default": False, "driverType": "gpu", **DRIVER, **spec},
    }


def from_corpus(name: str) -> list[Object]:
    """Return manifests with the metadata that a server sets."""
    objects = [obj for obj in yaml.safe_load_all((CORPUS / name).read_text()) if obj]
    for obj in objects:
        obj["metadata"]["uid"] = f"uid-of-{obj['metadata']['name']}"
    return objects


def drivers(rendering: RenderResult) -> list[Object]:
    """Return the driver DaemonSets."""
    return [rendered.object for rendered in rendering.objects if rendered.driver]


def driver_set(*objects: Object) -> Object:
    """Return the only driver DaemonSet of these policies."""
    (found,) = drivers(Situation(objects).rendering())
    return found


def driver_pod(*objects: Object) -> Object:
    """Return the spec of the pods of the only driver DaemonSet of these policies."""
    return driver_set(*objects)["spec"]["template"]["spec"]


def without_digests(daemon_set: Object) -> Object:
    """Return a driver DaemonSet without its digests, which change with every field."""
    template = deepcopy(daemon_set["spec"]["template"])
    pod, metadata = template["spec"], template["metadata"]
    for container in (*pod["initContainers"], *pod["containers"]):
        variables = container.get("env", [])
        container["env"] = [
            variable for variable in variables if variable["name"] != "DRIVER_CONFIG_DIGEST"
        ]
    for entries in (metadata["labels"], metadata["annotations"]):
        for name in ("sluice.dev/driver", "sluice.dev/target", "sluice.dev/install-digest"):
            entries.pop(name, None)
    del pod["nodeSelector"]
    return template


def pod_of(rendering: RenderResult, app: str) -> Object:
    """Return pod templates of DaemonSets by their `app` label."""
    (found,) = [
        rendered.object["spec"]["template"]["spec"]
        for rendered in rendering.objects
        if rendered.kind == "DaemonSet" and rendered.object["metadata"]["labels"]["app"] == app
    ]
    return found


def container_of(app: str, **spec: Any) -> Object:
    """Return the container of an agent of a ClusterPolicy with these settings."""
    (found,) = pod_of(Situation([cluster_policy(**spec)]).rendering(), app)["containers"]
    return found


def env_of(container: Object) -> dict[str, Any]:
    """Return a container's variables; None where the value is a reference."""
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def rendered_names(rendering: RenderResult) -> list[tuple[str, str]]:
    """Return kind and name of all rendered objects."""
    return [(rendered.kind, rendered.name) for rendered in rendering.objects]


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
    "devices-by-annotation": Situation(
        [
            cluster_policy(
                cdi={"nriPluginEnabled": True},
                toolkit={
                    "env": [
                        {"name": "NRI_GPU_CDI_DEVICE_NAMESPACES", "value": "team-a,team-b"},
                        {"name": "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES", "value": "monitoring"},
                        {"name": "NRI_SOCKET", "value": "/run/other.sock"},
                    ]
                },
            )
        ]
    ),
    "driver-on-the-host": Situation(from_corpus("gpu-cluster-policy.yaml")),
    "claims": Situation(
        [
            cluster_policy(
                driver={"enabled": False}, devicePlugin={"enabled": False}, dra={"enabled": True}
            )
        ]
    ),
    "claims-that-end": Situation(
        [cluster_policy(driver={"enabled": False}, daemonsets={"updateStrategy": "OnDelete"})],
        claims_end=True,
    ),
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
"""Situations by the name of the golden file."""
