"""Which NVIDIADriver has which node. When they contradict each other, no node changes hands.

Every node is looked at before anything is said, as the GPU Operator does it: the one driver that
selects it, else the default one, else none.
"""

from collections.abc import Mapping, Sequence

import msgspec

from libs.policy.findings import Finding, quote_value
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.kinds.unsupported import CONTAINERS, WORKLOADS
from libs.policy.validation import OWNER_LABEL

MAX_NAME_LENGTH = 63
"""Characters of a label's value: an owner's name must fit into one."""

WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
"""A person's: what the GPUs of a node are for."""


class NodeLabels(msgspec.Struct, frozen=True, kw_only=True):
    """What selects a node."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """Who has what."""

    owners: Mapping[str, str]
    """Names of NVIDIADrivers by names of nodes; a node that nobody has is not in it."""
    conflicts: Mapping[str, tuple[Finding, ...]]
    """By name of a NVIDIADriver: how it contradicts another. Empty: owners are as they should be;
    else they are as they were.
    """


def is_for_containers(node: NodeLabels, cluster: ClusterPolicy) -> bool:
    """Whether a GPU node is not for virtual machines, as the cluster's policy reads its label."""
    workloads = cluster.spec.sandbox_workloads
    said = node.labels.get(WORKLOAD_LABEL, "")
    wanted = said if said in WORKLOADS else workloads.default_workload
    return not workloads.enabled or wanted == CONTAINERS


def current_owners(
    drivers: Sequence[NvidiaDriver], nodes: Sequence[NodeLabels]
) -> Mapping[str, str]:
    """Who has which of these nodes already, as their labels say it."""
    live = {driver.metadata.name for driver in drivers}
    owners = {node.name: node.labels.get(OWNER_LABEL, "") for node in nodes}
    return {node: owner for node, owner in owners.items() if owner in live}


def assign_owners(
    drivers: Sequence[NvidiaDriver],
    nodes: Sequence[NodeLabels],
    *,
    unfit: Mapping[str, Sequence[Finding]],
) -> Ownership:
    """Who has which of these GPU nodes. `drivers` are live ones, each name once; `unfit` says by
    name what is wrong with a selection, which then cannot be told.
    """
    conflicts: dict[str, list[Finding]] = {name: list(found) for name, found in unfit.items()}
    for name, finding in [*_too_long(drivers), *_defaults(drivers)]:
        conflicts.setdefault(name, []).append(finding)
    fit = sorted(
        (driver for driver in drivers if driver.metadata.name not in unfit),
        key=lambda driver: driver.metadata.name,
    )
    owners, clashes = _selected(fit, nodes)
    for names, where in clashes.items():
        for name in names:
            conflicts.setdefault(name, []).append(_clash(names, where))
    if not conflicts:
        return Ownership(owners=owners, conflicts={})
    return Ownership(
        owners=current_owners(drivers, nodes),
        conflicts={name: tuple(conflicts[name]) for name in sorted(conflicts)},
    )


def _selected(
    drivers: Sequence[NvidiaDriver], nodes: Sequence[NodeLabels]
) -> tuple[dict[str, str], dict[tuple[str, ...], list[str]]]:
    """Owners by node, and the nodes that several drivers select, by those."""
    specific = [
        (driver.metadata.name, driver.spec.node_selector.items())
        for driver in drivers
        if not driver.spec.default
    ]
    default = next((driver.metadata.name for driver in drivers if driver.spec.default), None)
    owners: dict[str, str] = {}
    clashes: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        labels = node.labels.items()
        matching = [name for name, selector in specific if selector <= labels]
        if len(matching) > 1:
            clashes.setdefault(tuple(matching), []).append(node.name)
        elif matching:
            owners[node.name] = matching[0]
        elif default is not None:
            owners[node.name] = default
    return owners, clashes


def _too_long(drivers: Sequence[NvidiaDriver]) -> list[tuple[str, Finding]]:
    problem = f"is longer than {MAX_NAME_LENGTH} characters: a node's label cannot hold it"
    remedy = "make the object under a shorter name; until then no node changes hands"
    names = [driver.metadata.name for driver in drivers]
    return [
        (
            name,
            Finding(field="metadata.name", value=quote_value(name), problem=problem, remedy=remedy),
        )
        for name in names
        if len(name) > MAX_NAME_LENGTH
    ]


def _defaults(drivers: Sequence[NvidiaDriver]) -> list[tuple[str, Finding]]:
    names = sorted(driver.metadata.name for driver in drivers if driver.spec.default)
    if len(names) < 2:
        return []
    finding = Finding(
        field="spec.default",
        value=quote_value(True),
        problem="is so in several",
        quoted=f"multiple default NVIDIADrivers found: [{' '.join(names)}]",
        remedy="leave one, set it to false in the others; until then no node changes hands",
    )
    return [(name, finding) for name in names]


def _clash(names: Sequence[str], nodes: Sequence[str]) -> Finding:
    more = f" on {len(nodes)} nodes" if len(nodes) > 1 else ""
    return Finding(
        field="spec.nodeSelector",
        problem=f"contradicts another{more}",
        quoted=f"multiple NVIDIADrivers match the same node {nodes[0]}: [{' '.join(names)}]",
        remedy="select by labels that no node of the other has; until then no node changes hands",
    )
