"""What is to be written to one Node: from its labels, its facts and what people want. Pure.

One apply says all that is ours of a Node, and so takes away what it does not say. What somebody
else owns too stays for him: only what of the operands must go in spite of that is taken away by
name. Whether it may be written now is not decided here.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import NodeRecord
from libs.host.pci import is_gpu
from libs.kube.custom_resources import CustomObject
from libs.policy.deploy_labels import DEPLOY_PREFIX
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.manifests import parse_object
from libs.policy.pools import assemble_pools
from libs.policy.wanted import operands_of
from services.discovery.cluster import feature_labels, operand_labels
from services.discovery.cluster.label_keys import PCI, PCI_OF_OTHERS, YES
from services.discovery.cluster.resources import Node

ABSENCE_CONFIRMED: Final = 180.0
"""Seconds that a machine must have been without GPUs, until that counts as so: three looks."""


class LabelPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What people want of all nodes."""

    cluster: ClusterPolicy | GpuClusterPolicy | None = None
    """The policy that decides for the whole cluster, if there is one."""
    gpu_labels: bool = True
    """Whether nodes get labels of what their GPUs are."""


class ReportedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents of a node say of it in this boot; what they did not say is None."""

    facts: Facts | None = None
    driver: LoadedDriver | None = None
    without_gpus: float | None = None
    """For how many seconds it has been said that there are none; None: they do not say so."""


class ApplyLabels(msgspec.Struct, frozen=True):
    """All labels of ours."""

    labels: Mapping[str, str]


class RemoveLabels(msgspec.Struct, frozen=True):
    """These labels, whoever wrote them: operands that a node is not to have any more."""

    keys: tuple[str, ...]


LabelChange = ApplyLabels | RemoveLabels


class LabelDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What follows for one Node."""

    change: LabelChange | None = None
    foreign: int = 0
    """How many labels are not what the facts say, and somebody else's to mend."""


def decide(node: Node, reported: ReportedFacts, policy: LabelPolicy) -> LabelDecision:
    """What makes its labels what they should be."""
    labels = node.metadata.labels
    gpus = has_gpus(node, reported)
    described = _described(reported, policy, gpus)
    wanted = {key: value for key, value in described.items() if _may(node, key, value)}
    left = sum(
        1
        for key, value in described.items()
        if key not in wanted and value is not None and labels.get(key) != value
    )
    # Each goes by what the ones before it leave on the node.
    wanted |= operand_labels.presence(labels, gpus)
    wanted |= operand_labels.operands(_with(labels, wanted), policy.cluster)
    wanted |= operand_labels.pauses(_with(labels, wanted), _is_paused(node))
    return LabelDecision(change=_change(node, wanted), foreign=left)


def has_gpus(node: Node, reported: ReportedFacts) -> bool | None:
    """Whether it has GPUs; None: nobody can tell for sure."""
    labels = node.metadata.labels
    others = any(labels.get(key) == YES and key not in node.ours for key in PCI_OF_OTHERS)
    if reported.facts is not None and any(is_gpu(device) for device in reported.facts.pci or ()):
        return True
    if reported.facts is None or reported.facts.pci is None:
        return True if others else None
    gone = reported.without_gpus is not None and reported.without_gpus >= ABSENCE_CONFIRMED
    return False if gone and not others else None


def _described(told: ReportedFacts, wish: LabelPolicy, gpus: bool | None) -> feature_labels.Labels:
    """The labels of NFD and GFD that facts give, or that are to go."""
    found: feature_labels.Labels = {}
    if told.facts is not None:
        found |= feature_labels.system_labels(told.facts)
    if gpus and told.facts is not None and told.facts.pci is not None:
        found[PCI] = YES
    if gpus is False or not wish.gpu_labels:
        found |= dict.fromkeys(feature_labels.GPU_LABELS)
    elif told.facts is not None:
        found |= feature_labels.gpu_labels(told.facts, told.driver)
    if gpus is False:
        found[PCI] = None
    return found


def _may(node: Node, key: str, value: str | None) -> bool:
    """Whether a label of NFD or GFD is ours to change: somebody else may serve this node too."""
    if key in node.metadata.labels:
        return key in node.ours and key not in node.others and key not in node.claimed
    return value is not None and key not in node.claimed


def _is_paused(node: Node) -> bool | None:
    if not node.record:
        return False
    try:
        return decode(NodeRecord, node.record.encode()).paused
    except MalformedMessage:
        return None


def _with(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**labels, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _change(node: Node, wanted: Mapping[str, str | None]) -> LabelChange | None:
    labels = node.metadata.labels
    going = [key for key, value in wanted.items() if value is None and key in labels]
    if any(
        key.startswith(DEPLOY_PREFIX) and (key in node.others or key not in node.ours)
        for key in going
    ):
        return RemoveLabels(tuple(sorted(going)))
    owned = {key: labels[key] for key in node.ours if key in labels}
    told = {key: value for key, value in wanted.items() if labels.get(key) != value}
    applied = _with(owned, told)
    return None if applied == owned else ApplyLabels(dict(sorted(applied.items())))


def label_policy(
    policies: Mapping[str, Collection[CustomObject]], *, gpu_clusters: Collection[str]
) -> LabelPolicy:
    """Which operands nodes are to have: a GPU Operator's own GPUCluster leaves that undecided."""
    reads = [
        parse_object(kind, metadata=one.metadata, spec=one.spec)
        for kind, found in policies.items()
        for one in found
    ]
    cluster = assemble_pools(reads, (), gpu_clusters=tuple(gpu_clusters)).cluster
    return LabelPolicy(
        cluster=None if gpu_clusters else cluster, gpu_labels=operands_of(cluster).gpu_labels
    )
