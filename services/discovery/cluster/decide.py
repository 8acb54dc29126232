"""Decide what to write to one Node from its labels, its facts and the policies. Pure.

One apply carries all labels of ours: the server removes those that it leaves out. A label that
another manager owns too would survive that, so unwanted operands are removed by key.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import NodeRecord
from libs.host.pci import is_gpu
from libs.kube.resources import CustomObject
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.mig import MigStrategy
from libs.policy.manifests import parse_object
from libs.policy.owners import DEPLOY_PREFIX
from libs.policy.pools import assemble_pools
from libs.policy.wanted import operands_of
from services.discovery.cluster import gfd, nfd, operand_labels
from services.discovery.cluster.gfd import TIMESTAMP
from services.discovery.cluster.label_values import FEATURES, Labels, check, is_feature
from services.discovery.cluster.nfd import FOREIGN_PCI, PCI
from services.discovery.cluster.operand_labels import YES
from services.discovery.cluster.reported_gpus import health_text
from services.discovery.cluster.resources import Node
from services.discovery.cluster.sharing import UNSHARED, ConfigMap, PluginConfigs, plugin_configs

ABSENCE_CONFIRMED: Final = 180.0
"""Seconds without GPUs after which a machine counts as having none: three scans."""


_NAMED: Final = 8
"""Refused labels that a message names."""
_MOST_LINES: Final = 1 << 20
"""Refused lines that are counted."""


class LabelPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies require of all nodes."""

    cluster: ClusterPolicy | GpuClusterPolicy | None = None
    """The policy that decides for the whole cluster."""
    gpu_labels: bool = True
    """Label nodes with the properties of their GPUs."""
    mig_strategy: MigStrategy = MigStrategy.NONE
    plugin_configs: PluginConfigs | None = None
    """The configurations of the device plugin; None: there are none."""
    nfd_labels: bool = True
    """Write the labels of node feature discovery; otherwise NFD writes them."""


class ReportedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the present boot of a node; None: not reported."""

    facts: Facts | None = None
    driver: LoadedDriver | None = None
    without_gpus: float | None = None
    """Seconds for which the reports have shown no GPU."""
    at: float | None = None
    """When this was read, in Unix seconds."""


class ApplyLabels(msgspec.Struct, frozen=True):
    """Apply exactly these labels as ours."""

    labels: Mapping[str, str]


class RemoveLabels(msgspec.Struct, frozen=True):
    """Remove these labels of operands, whichever manager wrote them."""

    keys: tuple[str, ...]


LabelChange = ApplyLabels | RemoveLabels


class RefusedLabels(msgspec.Struct, frozen=True, kw_only=True):
    """What was reported for labels and cannot be written: those labels stay as they are."""

    keys: tuple[str, ...] = ()
    lines: int = 0
    """Lines of the machine's feature files that its agent left out."""
    why: str = ""
    """Why the first of these lines was left out."""

    @property
    def count(self) -> int:
        return len(self.keys) + self.lines

    def __str__(self) -> str:
        keys = ", ".join(self.keys[:_NAMED]) + (", …" if len(self.keys) > _NAMED else "")
        parts = [f"no values of labels: {keys}"] if keys else []
        if self.lines:
            parts.append(f"lines of feature files: {self.lines}, the first: {self.why}")
        return "; ".join(parts)


class LabelDecision(msgspec.Struct, frozen=True, kw_only=True):
    change: LabelChange | None = None
    changes_operands: bool = False
    """The change starts, stops or pauses operands, which agents' reports cannot do repeatedly."""
    foreign: int = 0
    """Number of labels that differ from the facts and belong to another manager."""
    refused: RefusedLabels = RefusedLabels()


def decide(node: Node, reported: ReportedFacts, policy: LabelPolicy) -> LabelDecision:
    labels = node.metadata.labels
    gpus = has_gpus(node, reported)
    found = _feature_labels(node, reported, policy, gpus)
    checked = check(found if policy.nfd_labels else _without_nfd(node, found))
    described = checked.labels
    wanted = {key: value for key, value in described.items() if _may_write(node, key, value)}
    foreign = sum(
        1
        for key, value in described.items()
        if key not in wanted and value is not None and labels.get(key) != value
    )
    # Each step starts from the labels that the steps before it leave.
    wanted |= operand_labels.presence(labels, gpus)
    wanted |= operand_labels.operands(_merge(labels, wanted), policy.cluster)
    wanted |= operand_labels.pauses(_merge(labels, wanted), _is_paused(node), policy.cluster)
    change = _change(node, wanted, at=reported.at)
    refused = _refused(reported.facts if policy.nfd_labels else None, checked.refused)
    return LabelDecision(
        change=change,
        changes_operands=any(
            key.startswith(DEPLOY_PREFIX) and labels.get(key) != value
            for key, value in wanted.items()
        ),
        foreign=foreign,
        refused=refused,
    )


def _refused(facts: Facts | None, keys: tuple[str, ...]) -> RefusedLabels:
    local = None if facts is None else facts.features
    if local is None or not local.refused:
        return RefusedLabels(keys=keys)
    lines = min(local.refused, _MOST_LINES)
    return RefusedLabels(keys=keys, lines=lines, why=health_text(local.why))


def has_gpus(node: Node, reported: ReportedFacts) -> bool | None:
    """Return whether a node has GPUs; None: unknown."""
    labels = node.metadata.labels
    labelled = any(labels.get(key) == YES and key not in node.ours for key in FOREIGN_PCI)
    if reported.facts is not None and any(is_gpu(device) for device in reported.facts.pci or ()):
        return True
    if reported.facts is None or reported.facts.pci is None:
        return True if labelled else None
    gone = reported.without_gpus is not None and reported.without_gpus >= ABSENCE_CONFIRMED
    return False if gone and not labelled else None


def _feature_labels(
    node: Node, reported: ReportedFacts, policy: LabelPolicy, gpus: bool | None
) -> Labels:
    """Return the labels of NFD and GFD to set or (None) to remove."""
    labels: Labels = {}
    facts = reported.facts
    if facts is not None:
        labels |= nfd.system_labels(facts, node.ours)
    if gpus and facts is not None and facts.pci is not None:
        labels[PCI] = YES
    if gpus is False or not policy.gpu_labels:
        labels |= dict.fromkeys(gfd.GPU_LABELS) | gfd.of_profiles(node.ours)
    elif facts is not None:
        labels |= _gpu_labels(node, facts, reported.driver, policy)
    if gpus is False:
        labels |= dict.fromkeys(nfd.OF_GPUS)
    return labels


def _gpu_labels(
    node: Node, facts: Facts, driver: LoadedDriver | None, policy: LabelPolicy
) -> Labels:
    configs = policy.plugin_configs
    sharing = UNSHARED if configs is None else configs.of_node(node.metadata.labels)
    found = gfd.gpu_labels(facts, driver, strategy=policy.mig_strategy, sharing=sharing)
    return (gfd.of_profiles(node.ours) if gfd.describes_gpus(found) else {}) | found


def _without_nfd(node: Node, described: Labels) -> Labels:
    """Leave the labels of NFD to it, and remove ours once it describes the node without them."""
    labels: Labels = {key: value for key, value in described.items() if not is_feature(key)}
    if _has_nfd(node):
        labels |= {key: None for key in node.ours if is_feature(key)}
    return labels


def _has_nfd(node: Node) -> bool:
    return any(each.startswith(FEATURES) for each in node.claimed)


def _may_write(node: Node, key: str, value: str | None) -> bool:
    """Return whether a label of NFD or GFD is ours: another feature discovery may run here too."""
    if key in node.metadata.labels:
        return key in node.ours and key not in node.others and key not in node.claimed
    if is_feature(key) and _has_nfd(node):
        return False
    return value is not None and key not in node.claimed


def _is_paused(node: Node) -> bool | None:
    if not node.record:
        return False
    try:
        return decode(NodeRecord, node.record.encode()).paused
    except MalformedMessage:
        return None


def _merge(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**labels, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _change(
    node: Node, wanted: Mapping[str, str | None], *, at: float | None
) -> LabelChange | None:
    labels = node.metadata.labels
    removed = [key for key, value in wanted.items() if value is None and key in labels]
    if any(
        key.startswith(DEPLOY_PREFIX) and (key in node.others or key not in node.ours)
        for key in removed
    ):
        return RemoveLabels(tuple(sorted(removed)))
    owned = {key: labels[key] for key in node.ours if key in labels}
    changed = {key: value for key, value in wanted.items() if labels.get(key) != value}
    if at is not None and _is_timed(node, wanted) and any(map(gfd.is_label, changed)):
        changed[TIMESTAMP] = str(int(at))
    applied = _merge(owned, changed)
    return None if applied == owned else ApplyLabels(dict(sorted(applied.items())))


def _is_timed(node: Node, wanted: Mapping[str, str | None]) -> bool:
    """Return whether GFD's time is ours to write; it only joins an apply with other changes."""
    return TIMESTAMP not in wanted and _may_write(node, TIMESTAMP, "")


def label_policy(
    policies: Mapping[str, Collection[CustomObject]],
    *,
    gpu_clusters: Collection[str],
    config_maps: Iterable[ConfigMap] = (),
    nfd_labels: bool,
) -> LabelPolicy:
    """Assemble the policies; a GPU Operator's own GPUCluster leaves the operands undecided."""
    parsed = [
        parse_object(kind, metadata=each.metadata, spec=each.spec)
        for kind, objects in policies.items()
        for each in objects
    ]
    cluster = assemble_pools(parsed, (), gpu_clusters=tuple(gpu_clusters)).cluster
    operands = operands_of(cluster)
    return LabelPolicy(
        cluster=None if gpu_clusters else cluster,
        gpu_labels=operands.gpu_labels,
        mig_strategy=operands.mig_strategy,
        plugin_configs=plugin_configs(cluster, config_maps),
        nfd_labels=nfd_labels,
    )
