"""`spec.daemonsets` of a ClusterPolicy."""

from enum import StrEnum
from typing import Annotated

from libs.policy.kinds.common import (
    Labels,
    Toleration,
)
from libs.policy.shapes import About, FreeForm, PolicyStruct


class UpdateStrategy(StrEnum):
    """How pods of Sluice's agents are replaced."""

    ROLLING_UPDATE = "RollingUpdate"
    ON_DELETE = "OnDelete"


class RollingUpdate(PolicyStruct, frozen=True, kw_only=True):
    """How many pods of an agent are replaced at a time."""

    max_unavailable: Annotated[
        str,
        About(
            "How many pods may be unavailable at a time: a number or a percentage.",
            effect="set on the agents' DaemonSets",
            unset="1",
            int_or_percent=True,
        ),
    ] = ""


class Daemonsets(PolicyStruct, frozen=True, kw_only=True):
    """`spec.daemonsets`: what all DaemonSets have in common."""

    labels: Annotated[
        Labels,
        About(
            "Labels.",
            effect="set on each DaemonSet and its pods, except reserved keys such as app,"
            " app.kubernetes.io/part-of and helm.sh/chart",
        ),
    ] = {}
    annotations: Annotated[
        Labels, About("Annotations.", effect="set on each DaemonSet and its pods")
    ] = {}
    tolerations: Annotated[
        tuple[Toleration, ...], About("Tolerations of pods.", effect="added to Sluice's own")
    ] = ()
    priority_class_name: Annotated[
        str,
        About(
            "The priority class of pods.", effect="set on the pods", unset="system-node-critical"
        ),
    ] = ""
    update_strategy: Annotated[
        UpdateStrategy,
        About(
            "How pods are replaced.",
            effect="set on the agents' DaemonSets; the driver's is always OnDelete",
            stored=True,
        ),
    ] = UpdateStrategy.ROLLING_UPDATE
    rolling_update: Annotated[
        RollingUpdate, About("Settings of the update strategy RollingUpdate.")
    ] = RollingUpdate()
    pod_security_context: Annotated[
        FreeForm, About("The security context of pods.", effect="set on the pods")
    ] = {}
