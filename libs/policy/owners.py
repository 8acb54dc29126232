"""Assign GPU nodes to NVIDIADrivers, as the GPU Operator does.

A node belongs to the one driver that selects it, else to the default driver, else to none. While
any drivers conflict, all nodes keep their owners.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from libs.policy.affinity import parse_affinity
from libs.policy.findings import Finding, quote_value
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.kinds.unsupported import CONTAINERS, WORKLOADS
from libs.policy.validation import OWNER_LABEL, PRESENT_LABEL

MAX_NAME_LENGTH = 63
"""Maximum length of a label value, which holds an owner's name."""

WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
"""A label that people set: the use of a node's GPUs."""

DEPLOY_PREFIX: Final = "nvidia.com/gpu.deploy."
"""Prefix of the labels that decide whether a node gets an operand; the operand's name follows."""

DEPLOY_OPERANDS: Final = f"{DEPLOY_PREFIX}operands"
"""The label that people set to `false` on a node that gets no operands at all."""
DEPLOY_DRIVER: Final = f"{DEPLOY_PREFIX}driver"
"""`false` on a node that gets no driver; `pre-installed` where the machine came with one."""
DEPLOY_PLUGIN: Final = f"{DEPLOY_PREFIX}device-plugin"
DEPLOY_DRA: Final = f"{DEPLOY_PREFIX}dra-driver"
PAUSED: Final = "paused-for-driver-upgrade"
"""The value of such a label, instead of `true`, while the driver of the node is upgraded."""

POOL_LABELS: Final = frozenset({PRESENT_LABEL, OWNER_LABEL, WORKLOAD_LABEL, DEPLOY_DRIVER})
"""The labels that decide on the pool of a node, besides those by which NVIDIADrivers select."""


class NodeLabels(msgspec.Struct, frozen=True, kw_only=True):
    """A node's name and the labels by which policies select it."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}


def is_pre_installed(labels: Mapping[str, str]) -> bool:
    """Report whether a node with these labels has a driver of its own, which stays as it is."""
    return labels.get(DEPLOY_DRIVER) == "pre-installed"


def selecting_labels(driver: NvidiaDriver) -> frozenset[str]:
    """Return the keys of the labels by which a driver selects its nodes."""
    affinity = parse_affinity(driver.spec.node_affinity)
    required = () if isinstance(affinity, str) else affinity.label_keys()
    return frozenset((*driver.spec.node_selector, *required))


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    owners: Mapping[str, str]
    """NVIDIADriver names by node name; nodes without an owner are absent."""
    conflicts: Mapping[str, tuple[Finding, ...]]
    """Conflicts by NVIDIADriver name. While there are any, `owners` are the previous owners."""


def is_for_containers(node: NodeLabels, cluster: ClusterPolicy) -> bool:
    """Report whether a GPU node runs containers rather than virtual machines."""
    workloads = cluster.spec.sandbox_workloads
    workload = node.labels.get(WORKLOAD_LABEL, "")
    if workload not in WORKLOADS:
        workload = workloads.default_workload
    return not workloads.enabled or workload == CONTAINERS


def current_owners(
    drivers: Sequence[NvidiaDriver], nodes: Sequence[NodeLabels]
) -> Mapping[str, str]:
    """Return the owners that the nodes' labels record, as far as these still exist."""
    live = {driver.metadata.name for driver in drivers}
    owners = {node.name: node.labels.get(OWNER_LABEL, "") for node in nodes}
    return {node: owner for node, owner in owners.items() if owner in live}


def assign_owners(
    drivers: Sequence[NvidiaDriver],
    nodes: Sequence[NodeLabels],
    *,
    unfit: Mapping[str, Sequence[Finding]],
) -> Ownership:
    """Assign owners to GPU nodes.

    `drivers` are not being deleted and have distinct names. `unfit` holds, by name, the errors that
    make a driver's node selection unusable.
    """
    conflicts: dict[str, list[Finding]] = {name: list(found) for name, found in unfit.items()}
    for name, finding in [*_name_conflicts(drivers), *_default_conflicts(drivers)]:
        conflicts.setdefault(name, []).append(finding)
    fit = sorted(
        (driver for driver in drivers if driver.metadata.name not in unfit),
        key=lambda driver: driver.metadata.name,
    )
    owners, nodes_in_conflict = _match_nodes(fit, nodes)
    for names, node_names in nodes_in_conflict.items():
        for name in names:
            conflicts.setdefault(name, []).append(_selection_conflict(names, node_names))
    if not conflicts:
        return Ownership(owners=owners, conflicts={})
    return Ownership(
        owners=current_owners(drivers, nodes),
        conflicts={name: tuple(conflicts[name]) for name in sorted(conflicts)},
    )


def _match_nodes(
    drivers: Sequence[NvidiaDriver], nodes: Sequence[NodeLabels]
) -> tuple[dict[str, str], dict[tuple[str, ...], list[str]]]:
    """Return owners by node, and the nodes that several drivers select by those drivers' names."""
    specific = [
        (driver.metadata.name, _selects(driver)) for driver in drivers if not driver.spec.default
    ]
    default = next(
        ((driver.metadata.name, _selects(driver)) for driver in drivers if driver.spec.default),
        None,
    )
    owners: dict[str, str] = {}
    nodes_in_conflict: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        matching = [name for name, selects in specific if selects(node)]
        if len(matching) > 1:
            nodes_in_conflict.setdefault(tuple(matching), []).append(node.name)
        elif matching:
            owners[node.name] = matching[0]
        elif default is not None and default[1](node):
            owners[node.name] = default[0]
    return owners, nodes_in_conflict


def _selects(driver: NvidiaDriver) -> Callable[[NodeLabels], bool]:
    """Return the predicate of a driver's nodeSelector and nodeAffinity."""
    selector, affinity = (
        driver.spec.node_selector.items(),
        parse_affinity(driver.spec.node_affinity),
    )
    if isinstance(affinity, str):
        return lambda _: False  # refused by validation
    if affinity.terms is None:
        return lambda node: selector <= node.labels.items()
    return lambda node: selector <= node.labels.items() and affinity.permits(node.name, node.labels)


def _name_conflicts(drivers: Sequence[NvidiaDriver]) -> list[tuple[str, Finding]]:
    problem = f"is longer than {MAX_NAME_LENGTH} characters: a node's label cannot hold it"
    remedy = "recreate the object with a shorter name; until then nodes keep their owners"
    names = [driver.metadata.name for driver in drivers]
    return [
        (
            name,
            Finding(field="metadata.name", value=quote_value(name), problem=problem, remedy=remedy),
        )
        for name in names
        if len(name) > MAX_NAME_LENGTH
    ]


def _default_conflicts(drivers: Sequence[NvidiaDriver]) -> list[tuple[str, Finding]]:
    names = sorted(driver.metadata.name for driver in drivers if driver.spec.default)
    if len(names) < 2:
        return []
    finding = Finding(
        field="spec.default",
        value=quote_value(True),
        problem="is true in several NVIDIADrivers",
        quoted=f"multiple default NVIDIADrivers found: [{' '.join(names)}]",
        remedy="keep one and set it to false in the others; until then nodes keep their owners",
    )
    return [(name, finding) for name in names]


def _selection_conflict(names: Sequence[str], nodes: Sequence[str]) -> Finding:
    more = f" on {len(nodes)} nodes" if len(nodes) > 1 else ""
    return Finding(
        field="spec.nodeSelector",
        problem=f"conflicts with another NVIDIADriver{more}",
        quoted=f"multiple NVIDIADrivers match the same node {nodes[0]}: [{' '.join(names)}]",
        remedy="select by labels that the other's nodes lack; until then nodes keep their owners",
    )
