"""Which NVIDIADriver has which node. When they contradict each other, no node changes hands.

Every node is looked at before anything is said, as the GPU Operator does it: the one driver that
selects it, else the default one, else none.
"""

from collections.abc import Mapping, Sequence

import msgspec

from sluice.policy.checks import OWNER_LABEL
from sluice.policy.findings import Finding, Severity, shown
from sluice.policy.kinds.nvidia_driver import NvidiaDriver

LONGEST_NAME = 63
"""Characters of a label's value: an owner's name must fit into one."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
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


def kept(drivers: Sequence[NvidiaDriver], nodes: Sequence[NodeFacts]) -> Mapping[str, str]:
    """Who has which of these nodes already, as their labels say it."""
    live = {driver.metadata.name for driver in drivers}
    owners = {node.name: node.labels.get(OWNER_LABEL, "") for node in nodes}
    return {node: owner for node, owner in owners.items() if owner in live}


def assigned(drivers: Sequence[NvidiaDriver], nodes: Sequence[NodeFacts]) -> Ownership:
    """Who has which of these GPU nodes. `drivers` are live ones, each name once."""
    conflicts: dict[str, list[Finding]] = {}
    for name, finding in [*_unfit(drivers), *_defaults(drivers)]:
        conflicts.setdefault(name, []).append(finding)
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
    for names, where in clashes.items():
        for name in names:
            conflicts.setdefault(name, []).append(_clash(names, where))
    if not conflicts:
        return Ownership(owners=owners, conflicts={})
    return Ownership(
        owners=kept(drivers, nodes),
        conflicts={name: tuple(conflicts[name]) for name in sorted(conflicts)},
    )


def _unfit(drivers: Sequence[NvidiaDriver]) -> list[tuple[str, Finding]]:
    """Drivers whose selection means nothing."""
    found: list[tuple[str, Finding]] = []
    for driver in drivers:
        name, spec = driver.metadata.name, driver.spec
        if OWNER_LABEL in spec.node_selector or (spec.default and spec.node_selector):
            problem = "selects nothing that can be told: no node changes hands until it is mended"
            found.append((name, _finding("spec.nodeSelector", spec.node_selector, problem, "")))
        if len(name) > LONGEST_NAME:
            problem = f"is longer than {LONGEST_NAME} characters: a node's label cannot hold it"
            remedy = "make the object under a shorter name"
            found.append((name, _finding("metadata.name", name, problem, remedy)))
    return found


def _defaults(drivers: Sequence[NvidiaDriver]) -> list[tuple[str, Finding]]:
    names = [driver.metadata.name for driver in drivers if driver.spec.default]
    if len(names) < 2:
        return []
    problem = f"is true in several: multiple default NVIDIADrivers found: [{' '.join(names)}]"
    finding = _finding("spec.default", True, problem, "leave one, set it to false in the others")
    return [(name, finding) for name in names]


def _clash(names: Sequence[str], nodes: Sequence[str]) -> Finding:
    first, more = nodes[0], len(nodes) - 1
    others = f" (and {more} more)" if more else ""
    problem = (
        f"contradicts another: multiple NVIDIADrivers match the same node {first}{others}:"
        f" [{' '.join(names)}]"
    )
    remedy = "select by labels that no node of the other has; until then no node changes hands"
    return _finding("spec.nodeSelector", None, problem, remedy)


def _finding(field: str, value: object, problem: str, remedy: str) -> Finding:
    return Finding(
        field=field,
        value="" if value is None else shown(value),
        problem=problem,
        remedy=remedy,
        severity=Severity.ERROR,
    )
