"""What is to be written to one Node: from its labels, its facts and what people want. Pure.

One apply says all that is ours of a Node, and so takes away what it does not say. What somebody
else owns too stays for him: only what of the operands must go in spite of that is taken away by
name. Whether it may be written now is not decided here.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.message import Unreadable, decode
from libs.contracts.node import Record
from libs.host.pci import is_gpu
from libs.policy.deploying import DEPLOY
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from services.discovery.cluster import deploying, features
from services.discovery.cluster.keys import PCI, PCI_OF_OTHERS, YES
from services.discovery.cluster.things import Node

SURE: Final = 180.0
"""Seconds that a machine must have been without GPUs, until that counts as so: three looks."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What people want of all nodes."""

    cluster: ClusterPolicy | GpuClusterPolicy | None = None
    """The policy that decides for the whole cluster, if there is one."""
    gpu_labels: bool = True
    """Whether nodes get labels of what their GPUs are."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents of a node say of it in this boot; what they did not say is None."""

    facts: Facts | None = None
    driver: LoadedDriver | None = None
    without_gpus: float | None = None
    """For how many seconds it has been said that there are none; None: they do not say so."""


class Apply(msgspec.Struct, frozen=True):
    """All labels of ours."""

    labels: Mapping[str, str]


class Remove(msgspec.Struct, frozen=True):
    """These labels, whoever wrote them: operands that a node is not to have any more."""

    keys: tuple[str, ...]


Change = Apply | Remove


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What follows for one Node."""

    change: Change | None = None
    left: int = 0
    """How many labels are not what the facts say, and somebody else's to mend."""


def decide(node: Node, told: Told, wish: Wish) -> Decision:
    """What makes its labels what they should be."""
    labels = node.metadata.labels
    gpus = has_gpus(node, told)
    described = _described(told, wish, gpus)
    wanted = {key: value for key, value in described.items() if _may(node, key, value)}
    left = sum(
        1
        for key, value in described.items()
        if key not in wanted and value is not None and labels.get(key) != value
    )
    # Each goes by what the ones before it leave on the node.
    wanted |= deploying.presence(labels, gpus)
    wanted |= deploying.operands(_with(labels, wanted), wish.cluster)
    wanted |= deploying.pauses(_with(labels, wanted), _is_paused(node))
    return Decision(change=_change(node, wanted), left=left)


def has_gpus(node: Node, told: Told) -> bool | None:
    """Whether it has GPUs; None: nobody can tell for sure."""
    labels = node.metadata.labels
    others = any(labels.get(key) == YES and key not in node.ours for key in PCI_OF_OTHERS)
    if told.facts is not None and any(is_gpu(device) for device in told.facts.pci or ()):
        return True
    if told.facts is None or told.facts.pci is None:
        return True if others else None
    gone = told.without_gpus is not None and told.without_gpus >= SURE
    return False if gone and not others else None


def _described(told: Told, wish: Wish, gpus: bool | None) -> features.Labels:
    """The labels of NFD and GFD that facts give, or that are to go."""
    found: features.Labels = {}
    if told.facts is not None:
        found |= features.of_system(told.facts)
    if gpus and told.facts is not None and told.facts.pci is not None:
        found[PCI] = YES
    if gpus is False or not wish.gpu_labels:
        found |= dict.fromkeys(features.OF_GPUS)
    elif told.facts is not None:
        found |= features.of_gpus(told.facts, told.driver)
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
        return decode(Record, node.record.encode()).paused
    except Unreadable:
        return None


def _with(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**labels, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _change(node: Node, wanted: Mapping[str, str | None]) -> Change | None:
    labels = node.metadata.labels
    going = [key for key, value in wanted.items() if value is None and key in labels]
    if any(
        key.startswith(DEPLOY) and (key in node.others or key not in node.ours) for key in going
    ):
        return Remove(tuple(sorted(going)))
    owned = {key: labels[key] for key in node.ours if key in labels}
    told = {key: value for key, value in wanted.items() if labels.get(key) != value}
    applied = _with(owned, told)
    return None if applied == owned else Apply(dict(sorted(applied.items())))
