"""The policies by which nodes are selected, as people wrote them, followed on the API server."""

import random as chance
from collections.abc import Mapping
from typing import Any, Final

from sluice.kube import views
from sluice.kube.client import Kube
from sluice.kube.resources import Resource
from sluice.kube.source import Source
from sluice.policy.kinds import KINDS
from sluice.policy.kinds.rollout import ROLLOUT
from sluice.policy.kinds.strategy import ROLLOUT_STRATEGY
from sluice.runtime.clock import Clock


class PolicyObject(views.Object, frozen=True, kw_only=True):
    """One of them."""

    spec: Any = None


POLICIES: Final[Mapping[str, Resource[PolicyObject]]] = {
    kind.name: Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.name,
        namespaced=False,
        view=PolicyObject,
    )
    for kind in KINDS.values()
    if kind not in (ROLLOUT, ROLLOUT_STRATEGY)
}
"""By kind."""


def sources(
    kube: Kube, *, clock: Clock, random: chance.Random
) -> Mapping[str, Source[PolicyObject]]:
    """All of them, by kind, to be followed."""
    return {
        kind: Source(kube, resource, clock=clock, random=random)
        for kind, resource in POLICIES.items()
    }
