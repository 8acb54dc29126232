"""Observed state of operands and nodes, from which statuses are computed."""

from collections.abc import Mapping

import msgspec


class ObservedDaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a DaemonSet, as its controller reports it."""

    generation: int = 1
    observed_generation: int = 1
    desired: int = 0
    updated: int = 0
    available: int = 0


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a pool, from its labels and its record."""

    state: str = ""
    """The value of the public upgrade label."""
    label: str = ""
    """The value of the label `sluice.dev/driver`."""
    cause: str = ""
    """Why the node is not in its wanted state."""
    skipped: bool = False
    """Whether a person excluded the node."""


class PodProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a DaemonSet's pod on a node."""

    daemon_set: str
    node: str
    cause: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that statuses are computed from, at one moment."""

    daemon_sets: Mapping[str, ObservedDaemonSet] = {}
    """Existing DaemonSets, by name."""
    nodes: Mapping[str, ObservedNode] = {}
    """By name."""
    pod_problems: tuple[PodProblem, ...] = ()
    refused: Mapping[str, str] = {}
    """Why the API server refused a rendered object, by kind and name (`DaemonSet/a`)."""
    feature_labels: bool = True
    """Whether any node has labels of Node Feature Discovery."""
