"""Small nodes and facts for tests of label decisions."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.facts import (
    Facts,
    Kernel,
    LoadedDriver,
    OperatingSystem,
    PciDevice,
)
from libs.contracts.node import NodeRecord
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.manifests import parse_manifest
from services.discovery.cluster import resources
from services.discovery.cluster.decide import (
    ApplyLabels,
    LabelDecision,
    LabelPolicy,
    ReportedFacts,
    decide,
)
from tests.builders import objects
from tests.builders.fleet import written
from tests.builders.gpus import gpu
from tests.builders.objects import seen
from tests.unit.policy.situations import cluster_policy

DEPLOY = "nvidia.com/gpu.deploy."
FEATURES = "feature.node.kubernetes.io/"
PRESENT = "nvidia.com/gpu.present"
OPERANDS = (
    *("driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm"),
    *("dcgm-exporter", "node-status-exporter", "operator-validator", "client"),
)
CONTAINER = frozenset(f"{DEPLOY}{name}" for name in OPERANDS)
ALL_OPERANDS = dict.fromkeys(OPERANDS, "true")
NFD = "nfd-master"
OPERATOR = "gpu-operator"

DEVICE = PciDevice(address="0000:01:00.0", vendor="10de", device="2330", device_class="0302")
NIC = PciDevice(address="0000:02:00.0", vendor="15b3", device="1021", device_class="0207")
GPU = gpu(uuid="GPU-1", pci="0000:01:00.0", compute_capability=(9, 0), mig_capable=True)
SYSTEM = Facts(
    pci=(DEVICE,),
    kernel=Kernel(release="5.15.0-139-generic"),
    os=OperatingSystem(id="ubuntu", version_id="22.04"),
)
DRIVER = LoadedDriver(version="580.95.05", cuda="13.0")
NO_GPUS = ReportedFacts(facts=Facts(pci=(NIC,)), without_gpus=180.0)
"""The absence of GPUs is confirmed."""
PCI_ALONE = ReportedFacts(facts=Facts(pci=(DEVICE,)))


def policy(**spec: Any) -> ClusterPolicy:
    """Return a ClusterPolicy with these settings."""
    created = parse_manifest("ClusterPolicy", cluster_policy(**spec)).policy
    assert isinstance(created, ClusterPolicy)
    return created


LABEL_POLICY = LabelPolicy(cluster=policy())
ON_HOSTS = LabelPolicy(cluster=GpuClusterPolicy())


def node(
    labels: dict[str, str] | None = None,
    *,
    ours: tuple[str, ...] = (),
    owners: dict[str, str] | None = None,
    upgrade: NodeRecord | str | None = None,
    claims: str = "",
) -> resources.Node:
    """Return a Node with these labels; `owners` maps labels to the managers that wrote them."""
    fields = {resources.MANAGER: list(ours)}
    for key, manager in (owners or {}).items():
        fields.setdefault(manager, []).append(key)
    notes = {"nfd.node.kubernetes.io/feature-labels": claims} if claims else {}
    entries = [_entry(manager, keys) for manager, keys in fields.items() if keys]
    meta: dict[str, Any] = {"labels": labels, "annotations": {**notes, **written(upgrade)}}
    whole = objects.node(boot="boot-1", resourceVersion="7", managedFields=entries, **meta)
    return seen(resources.Node, whole)


def ours(labels: dict[str, str], **more: Any) -> resources.Node:
    """Return a Node whose labels were all applied by Sluice."""
    return node(labels, ours=tuple(labels), **more)


def labels_after(
    node: resources.Node, reported: ReportedFacts, label_policy: LabelPolicy = LABEL_POLICY
) -> dict[str, str]:
    """Return the labels after all decisions were written: at most two writes."""
    for _ in range(3):
        decision = decide(node, reported, label_policy)
        if decision.change is None:
            return node.metadata.labels
        node = node_after(node, decision)
    raise AssertionError(f"the labels do not settle: {decide(node, reported, label_policy)}")


def node_after(node: resources.Node, decision: LabelDecision) -> resources.Node:
    """Return the node as a server stores it after this write."""
    labels, change = dict(node.metadata.labels), decision.change
    assert change is not None
    if isinstance(change, ApplyLabels):
        for key in node.ours - change.labels.keys() - node.others:
            del labels[key]
        labels |= change.labels
        sluice_labels = frozenset(change.labels)
        others = frozenset(
            key
            for key in node.others & labels.keys()
            if key not in sluice_labels or node.metadata.labels.get(key) == labels[key]
        )
    else:
        labels = {key: value for key, value in labels.items() if key not in change.keys}
        sluice_labels, others = node.ours - set(change.keys), node.others - set(change.keys)
    metadata = replace(node.metadata, labels=labels)
    return replace(node, metadata=metadata, ours=sluice_labels, others=others)


def operands_after(
    node: resources.Node,
    reported: ReportedFacts = PCI_ALONE,
    label_policy: LabelPolicy = LABEL_POLICY,
) -> dict[str, str]:
    """Return the values of the deploy labels by operand, after all decisions were written."""
    return operands_in(labels_after(node, reported, label_policy))


def operands_in(labels: dict[str, str]) -> dict[str, str]:
    """Return the values of the deploy labels by operand."""
    return {
        key.removeprefix(DEPLOY): value for key, value in labels.items() if key.startswith(DEPLOY)
    }


def _entry(manager: str, keys: list[str]) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Apply" if manager == resources.MANAGER else "Update",
        "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in keys}}},
    }
