"""How operands and nodes stand, as data: what status is made of, whoever read it and where."""

from collections.abc import Mapping

import msgspec


class ObservedDaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """A DaemonSet as its controller sees it."""

    generation: int = 1
    observed_generation: int = 1
    desired: int = 0
    updated: int = 0
    available: int = 0


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a pool, as its labels and its record say it."""

    state: str = ""
    """The value of the public upgrade label."""
    label: str = ""
    """Of `sluice.dev/driver`."""
    cause: str = ""
    """Why it is not where its policy wants it."""
    skipped: bool = False
    """A person took it out."""


class PodProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the pod of a DaemonSet on a node."""

    daemon_set: str
    node: str
    cause: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, at one moment."""

    daemon_sets: Mapping[str, ObservedDaemonSet] = {}
    """By name, those that are there."""
    nodes: Mapping[str, ObservedNode] = {}
    """By name."""
    pod_problems: tuple[PodProblem, ...] = ()
    refused: Mapping[str, str] = {}
    """By kind and name, `DaemonSet/a`: why the API server did not take what was rendered."""
    feature_labels: bool = True
    """Whether any node has labels of node feature discovery."""
